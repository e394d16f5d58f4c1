// The driver for Debian's qemu-system-x86_64 (microvm machine; KVM or TCG).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "hypervisor/hypervisor.h"

namespace drupe {

struct QemuOptions {
  std::string program;  ///< Empty: $DRUPE_QEMU, else /usr/bin/qemu-system-x86_64.
  std::string preload;  ///< Path of libdrupe-ram.so.
  Accelerator accelerator = Accelerator::kTcg;
  std::uint64_t tsc_khz = 0;                     ///< From the probe; 0: measured now, which takes 20 ms.
  std::vector<std::string> confinement_missing;  ///< From the probe.
};

/// kNotFound when the program or the library is missing.
Result<std::unique_ptr<Hypervisor>> make_qemu_hypervisor(QemuOptions options);

/// $DRUPE_QEMU, else /usr/bin/qemu-system-x86_64.
[[nodiscard]] std::string qemu_program();

/// What saved state of this program on this machine depends on. Reads a few KiB, runs nothing.
Result<std::string> qemu_state_key(const std::string& program, Accelerator accelerator);

/// Frequency of the time stamp counter, measured against the monotonic clock for 20 ms; good to 0.1 %.
[[nodiscard]] std::uint64_t measure_tsc_khz();

}  // namespace drupe
