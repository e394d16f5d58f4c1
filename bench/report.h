// The table of a run: each line is a measurement, its yardstick from the same run, and the target they make.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "samples.h"

namespace drupe::bench {

/// The median must be at most (at_least: at least) factor x the yardstick's median + plus.
struct Target {
  double factor = 0;
  double plus = 0;
  bool at_least = false;
};

struct Line {
  std::string row;  ///< Name that chooses it on the command line.
  std::string what;
  std::string unit = "ms";
  Samples samples;
  std::string yardstick_what;
  Samples yardstick;
  Samples cpu,
      yardstick_cpu;  ///< Processor milliseconds of each sample, its tidying up included; may be empty.
  std::optional<Target> target;                         ///< Absent: only told.
  std::vector<std::pair<std::string, double>> details;  ///< E.g. medians of stages.
  double load = 0;  ///< Average of the last minute when the line was finished.
};

[[nodiscard]] std::optional<double> limit_of(const Line& line);
[[nodiscard]] bool passes(const Line& line);

class Report {
 public:
  /// Stamps the load and prints the line.
  void add(Line line);
  void fail(const std::string& row, const Error& error);
  [[nodiscard]] const std::vector<Line>& lines() const { return lines_; }
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& failures() const { return failures_; }
  void print_table() const;
  /// Raw samples, machine and versions.
  [[nodiscard]] std::string json(const std::vector<std::pair<std::string, std::string>>& facts) const;

 private:
  std::vector<Line> lines_;
  std::vector<std::pair<std::string, std::string>> failures_;
};

}  // namespace drupe::bench
