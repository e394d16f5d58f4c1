// Milliseconds of the stages of one command, for --json.
#pragma once

#include <chrono>
#include <string>

#include "engine/engine.h"

namespace drupe::cli {

class Stopwatch {
 public:
  /// Ends the current stage under `name`.
  void lap(std::string name) {
    const auto now = std::chrono::steady_clock::now();
    timings_.stages.emplace_back(std::move(name), milliseconds(now - last_));
    last_ = now;
  }
  /// Adds the parts of a stage that were measured elsewhere, as "name.part".
  void add_parts(const std::string& name, const Timings& parts) {
    for (const auto& [part, time] : parts.stages) {
      std::string key = name + "." + part;
      for (char& c : key)
        if (c == ' ') c = '.';
      timings_.stages.emplace_back(std::move(key), time);
    }
  }
  /// All stages, and "total".
  [[nodiscard]] Timings finish() const {
    Timings all = timings_;
    all.stages.emplace_back("total", milliseconds(std::chrono::steady_clock::now() - begun_));
    return all;
  }

 private:
  static double milliseconds(std::chrono::steady_clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
  }
  Timings timings_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_ = begun_;
};

}  // namespace drupe::cli
