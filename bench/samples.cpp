#include "samples.h"

#include <algorithm>
#include <cmath>

namespace drupe::bench {

double percentile(const Samples& samples, double share) {
  if (samples.empty()) return 0;
  Samples sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  const auto index = static_cast<std::size_t>(std::max(1.0, rank)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

double least(const Samples& samples) {
  return samples.empty() ? 0 : *std::min_element(samples.begin(), samples.end());
}

double most(const Samples& samples) {
  return samples.empty() ? 0 : *std::max_element(samples.begin(), samples.end());
}

}  // namespace drupe::bench
