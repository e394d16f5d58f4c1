// Starting one qemu process: its sockets, files and confinement.
#pragma once

#include <vector>

#include <sys/types.h>

#include "hypervisor/hypervisor.h"
#include "hypervisor/qemu/machine.h"
#include "hypervisor/qemu/qemu.h"

namespace drupe {

/// kRestore or kBoot, by what `spec` brings.
[[nodiscard]] LaunchStage stage_of(const LaunchSpec& spec);

/// Returns after the exec. `failed_siblings`: see SpawnRequest.
Result<QemuParts> launch_parts(const QemuOptions& options, LaunchSpec spec, LaunchStage stage,
                               std::vector<pid_t>* failed_siblings = nullptr);

/// A memory file with the extents as libdrupe-ram.so reads them.
Result<UniqueFd> extents_file(const std::vector<MemoryExtent>& extents);

}  // namespace drupe
