// How long the stages of an operation took, as messages carry it.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace drupe {

/// Names of stages, and milliseconds since the operation's begin at which each was done.
using StageTimings = std::vector<std::pair<std::string, double>>;

void append_timings(ByteWriter& writer, const StageTimings& timings);
/// Hostile bytes make the reader not ok.
[[nodiscard]] StageTimings read_timings(ByteReader& reader);

/// Notes the time since its own begin.
class StageMarks {
 public:
  void mark(const char* stage) {
    const auto passed = std::chrono::steady_clock::now() - begun_;
    timings_.emplace_back(stage, std::chrono::duration<double, std::milli>(passed).count());
  }
  [[nodiscard]] const StageTimings& timings() const { return timings_; }

 private:
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  StageTimings timings_;
};

}  // namespace drupe
