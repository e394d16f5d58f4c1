// The files of the base snapshot that the engine uses for the benchmark's image, for bare clones.
#pragma once

#include <string>
#include <vector>

#include "bare_clone.h"
#include "bench.h"
#include "shim/spec.h"

namespace drupe::bench {

struct BaseFiles {
  CloneFiles files;
  std::uint64_t tsc_khz = 0;
  std::string preload;
  /// Start of the command line of drupe-bench-clone.
  [[nodiscard]] std::vector<std::string> clone_command(const Bench& bench) const;
};

/// Starts a sandbox once, so that the snapshot exists.
Result<BaseFiles> find_base_files(Bench& bench, std::uint32_t memory_mib = 512);

}  // namespace drupe::bench
