// Raw bytes over the bulk port of a guest that does nothing else: the yardstick of transfers.
#pragma once

#include <memory>
#include <string>

#include "base/event_loop.h"
#include "hypervisor/hypervisor.h"

namespace drupe::bench {

class RawPort {
 public:
  struct Files {
    std::string guest_dir;  ///< vmlinux and modules/
    std::string init;       ///< The static program port-init.
    std::string scratch;
  };
  /// Boots the guest.
  static Result<std::unique_ptr<RawPort>> boot(EventLoop& loop, Hypervisor& hypervisor, const Files& files);
  /// MiB per second from the guest to the host.
  Result<double> receive(std::uint32_t mib);
  /// And from the host to the guest.
  Result<double> send(std::uint32_t mib);

 private:
  explicit RawPort(EventLoop& loop) : loop_(loop) {}
  Status tell(const std::string& line);
  Status hear(const std::string& wanted);

  EventLoop& loop_;
  std::unique_ptr<Machine> machine_;
};

}  // namespace drupe::bench
