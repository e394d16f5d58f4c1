// Measures the stages of one operation.
#pragma once

#include <chrono>
#include <string>

#include "engine/engine.h"

namespace drupe {

/// Each mark() gives the time since the one before (or the construction) a name.
class StageClock {
 public:
  explicit StageClock(Timings& out) : out_(out) {}
  void mark(std::string name) {
    const auto now = std::chrono::steady_clock::now();
    out_.stages.emplace_back(std::move(name), std::chrono::duration<double, std::milli>(now - last_).count());
    last_ = now;
  }

 private:
  Timings& out_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace drupe
