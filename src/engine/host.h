// What this machine runs sandboxes with: the hypervisor that a functional probe chose, and what it can
// promise.
#pragma once

#include <string>
#include <vector>

#include "engine/home.h"
#include "hypervisor/hypervisor.h"

namespace drupe {

struct Host {
  HypervisorInfo hypervisor;
  std::string qemu_path;
  std::string kvm_reason;     ///< Why KVM was not chosen; empty when it was.
  std::string kvm_next_step;  ///< What mends that, if anything does.

  [[nodiscard]] std::string isolation() const {
    return hypervisor.accelerator == Accelerator::kKvm ? "hardware-virtualized" : "emulated";
  }
};

/// True when two measurements of the time-stamp counter are the same clock: within 0.1 %.
[[nodiscard]] bool same_tsc(std::uint64_t a, std::uint64_t b);

/// Probes, or takes what an earlier process of the same boot found out. `fresh`: probes again.
Result<Host> find_host(const Home& home, bool fresh);

}  // namespace drupe
