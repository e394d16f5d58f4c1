// Numbers of one measurement and what is said about them.
#pragma once

#include <cstddef>
#include <vector>

namespace drupe::bench {

using Samples = std::vector<double>;

/// Nearest-rank percentile, `share` in 0..1; 0 for no samples.
[[nodiscard]] double percentile(const Samples& samples, double share);
[[nodiscard]] inline double median(const Samples& samples) {
  return percentile(samples, 0.5);
}
[[nodiscard]] double least(const Samples& samples);
[[nodiscard]] double most(const Samples& samples);

}  // namespace drupe::bench
