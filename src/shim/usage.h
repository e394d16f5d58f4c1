// What a sandbox costs the host, read from files of /proc that are opened before the shim locks itself down.
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace drupe {

struct UsageNumbers {
  std::uint64_t hypervisor_private_bytes = 0, guest_private_bytes = 0, shim_private_bytes = 0;
  std::uint64_t cpu_ns = 0;  ///< Of all hypervisors since the start, guest included.
};

class Usage {
 public:
  /// Opens what it may; what is refused counts as 0.
  void open(std::uint64_t guest_ram_bytes);
  /// Counts this hypervisor from now on, by its files of /proc (copied; -1: not known). What processor time
  /// the one before has used stays in the sum.
  void follow(int smaps_fd, int stat_fd);
  [[nodiscard]] UsageNumbers read() const;
  /// How many processes the kernel has killed for want of memory since open(): the evidence for kHostOom.
  [[nodiscard]] std::uint64_t oom_kills() const;

 private:
  [[nodiscard]] std::uint64_t oom_counter() const;
  [[nodiscard]] std::uint64_t hypervisor_cpu_ns() const;

  UniqueFd smaps_, stat_, own_rollup_, vmstat_;
  std::uint64_t guest_ram_bytes_ = 0;
  std::uint64_t oom_at_open_ = 0;
  std::uint64_t earlier_cpu_ns_ = 0;  ///< Of hypervisors that this sandbox had before.
};

}  // namespace drupe
