// A clone of a base snapshot without shim, record and engine: the yardstick of what restoring costs at least.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "hypervisor/hypervisor.h"
#include "shim/guest_link.h"

namespace drupe::bench {

struct CloneFiles {
  std::string image, node;  ///< Disk chain below the clone's own node.
  std::string ram, state;
  std::string top;  ///< Made, and unlinked at once.
  std::uint32_t memory_mib = 512;
};

class BareClone {
 public:
  /// Restores, does the handshake and thaws the guest's work.
  static Result<std::unique_ptr<BareClone>> start(EventLoop& loop, Hypervisor& hypervisor,
                                                  const CloneFiles& files);
  /// Round trip to the agent.
  Status ping();
  /// Runs a command; its output goes to `out`. Returns its exit code.
  Result<int> run(const std::vector<std::string>& argv, std::string& out);
  void kill() { machine_->kill(); }

 private:
  explicit BareClone(EventLoop& loop) : loop_(loop) {}
  EventLoop& loop_;
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<GuestLink> link_;
  UniqueFd net_peer_;
};

}  // namespace drupe::bench
