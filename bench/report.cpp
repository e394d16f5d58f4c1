#include "report.h"

#include <cstdio>

#include "host_facts.h"

namespace drupe::bench {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value >= 1000 ? "%.0f" : value >= 10 ? "%.1f" : "%.2f", value);
  return text;
}

std::string target_text(const Line& line) {
  if (!line.target) return "-";
  std::string text = line.target->at_least ? ">= " : "<= ";
  const auto limit = limit_of(line);
  return text + (limit ? number(*limit) : "?");
}

std::string formula(const Target& target) {
  if (target.factor == 0) return "";
  std::string text = number(target.factor) + " x yardstick";
  if (target.plus != 0) text += " + " + number(target.plus);
  return text;
}

void print_row(const Line& line) {
  const std::string yard = line.yardstick.empty() ? "-" : number(median(line.yardstick));
  const std::string ratio = line.yardstick.empty() || median(line.yardstick) == 0
                                ? "-"
                                : number(median(line.samples) / median(line.yardstick));
  std::printf("%-52s %9s %9s %9s %4zu %-5s %9s %6s %10s %-5s %5.1f\n", line.what.c_str(),
              number(median(line.samples)).c_str(), number(percentile(line.samples, 0.99)).c_str(),
              number(least(line.samples)).c_str(), line.samples.size(), line.unit.c_str(), yard.c_str(),
              ratio.c_str(), target_text(line).c_str(), line.target ? (passes(line) ? "pass" : "MISS") : "",
              line.load);
}

void print_notes(const Line& line) {
  if (!line.yardstick_what.empty()) {
    std::string text = "yardstick: " + line.yardstick_what;
    if (line.target && line.target->factor != 0) text += "; target " + formula(*line.target);
    std::printf("    %s\n", text.c_str());
  }
  if (most(line.cpu) > 0)
    std::printf("    processor time: %s ms, yardstick %s ms\n", number(median(line.cpu)).c_str(),
                number(median(line.yardstick_cpu)).c_str());
  if (line.details.empty()) return;
  std::printf("   ");
  for (const auto& [name, value] : line.details) std::printf(" %s %s;", name.c_str(), number(value).c_str());
  std::printf("\n");
}

}  // namespace

std::optional<double> limit_of(const Line& line) {
  if (!line.target) return std::nullopt;
  if (line.target->factor != 0 && line.yardstick.empty()) return std::nullopt;
  return line.target->factor * median(line.yardstick) + line.target->plus;
}

bool passes(const Line& line) {
  const auto limit = limit_of(line);
  if (!limit || line.samples.empty()) return false;
  return line.target->at_least ? median(line.samples) >= *limit : median(line.samples) <= *limit;
}

void Report::add(Line line) {
  line.load = load_average();
  print_row(line);
  print_notes(line);
  std::fflush(stdout);
  lines_.push_back(std::move(line));
}

void Report::fail(const std::string& row, const Error& error) {
  std::printf("%-52s FAILED: %s\n", row.c_str(), to_string(error).c_str());
  std::fflush(stdout);
  failures_.emplace_back(row, to_string(error));
}

void Report::print_table() const {
  std::printf("\n%-52s %9s %9s %9s %4s %-5s %9s %6s %10s %-5s %5s\n", "what", "median", "p99", "min", "n",
              "unit", "yardstick", "ratio", "target", "", "load");
  for (const Line& line : lines_) print_row(line);
  for (const auto& [row, why] : failures_) std::printf("%-52s FAILED: %s\n", row.c_str(), why.c_str());
}

}  // namespace drupe::bench
