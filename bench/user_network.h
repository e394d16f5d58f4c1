// A guest on qemu's built-in user network: the yardstick of the network row.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/spawn.h"
#include "base/unique_fd.h"

namespace drupe::bench {

class UserNetwork {
 public:
  struct Files {
    std::string qemu;
    std::string guest_dir;  ///< vmlinux and modules/
    std::string init;       ///< The static program net-init.
    std::string scratch;
    std::uint64_t tsc_khz = 0;  ///< The host's; an emulated guest cannot find it out.
  };
  /// Boots the guest, with the processor and memory of an ordinary sandbox, unconfined.
  static Result<std::unique_ptr<UserNetwork>> boot(const Files& files);
  ~UserNetwork();
  UserNetwork(const UserNetwork&) = delete;
  UserNetwork& operator=(const UserNetwork&) = delete;
  /// A command of guest/net_commands.h against a port of this host's loopback; its numbers.
  Result<std::vector<double>> run(const std::string& command, std::uint16_t port, std::uint32_t count);

 private:
  UserNetwork() = default;
  Result<std::string> read_line();

  ChildProcess child_;
  UniqueFd console_;
  std::string heard_;
};

}  // namespace drupe::bench
