#include <nlohmann/json.hpp>

#include "report.h"

namespace drupe::bench {

std::string Report::json(const std::vector<std::pair<std::string, std::string>>& facts) const {
  nlohmann::ordered_json out;
  for (const auto& [name, value] : facts) out["machine"][name] = value;
  out["lines"] = nlohmann::ordered_json::array();
  for (const Line& line : lines_) {
    nlohmann::ordered_json entry;
    entry["row"] = line.row;
    entry["what"] = line.what;
    entry["unit"] = line.unit;
    entry["median"] = median(line.samples);
    entry["p99"] = percentile(line.samples, 0.99);
    entry["min"] = least(line.samples);
    entry["max"] = most(line.samples);
    entry["load"] = line.load;
    if (const auto limit = limit_of(line)) {
      entry["limit"] = *limit;
      entry["pass"] = passes(line);
    }
    if (!line.yardstick.empty()) {
      entry["yardstick"] = line.yardstick_what;
      entry["yardstick_median"] = median(line.yardstick);
      entry["yardstick_samples"] = line.yardstick;
    }
    if (!line.cpu.empty()) entry["cpu_ms"] = line.cpu;
    if (!line.yardstick_cpu.empty()) entry["yardstick_cpu_ms"] = line.yardstick_cpu;
    for (const auto& [name, value] : line.details) entry["details"][name] = value;
    entry["samples"] = line.samples;
    out["lines"].push_back(std::move(entry));
  }
  for (const auto& [row, why] : failures_) out["failed"][row] = why;
  return out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace drupe::bench
