// What pruning is asked to do, and what it did.
#pragma once

#include <cstdint>

namespace drupe {

enum class Prune : std::uint8_t { kRemove, kOnlyCount };

/// What was removed, or would be: base snapshots that no current image and hypervisor needs, kernels,
/// leftovers of killed processes.
struct PruneReport {
  std::uint32_t bases = 0, kernels = 0;
  std::uint32_t leftovers = 0;  ///< Not counted by kOnlyCount.
  std::uint64_t bytes = 0;      ///< On disk, of files whose last link went.
};

}  // namespace drupe
