// What druped counts and times, as Prometheus reads it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace drupe::api {

/// Callable from any thread. Label values are words of this program, never of a client: they are few, and
/// need no escaping.
class Metrics {
 public:
  void count_request(std::string_view method, std::string_view route, int status, double ms);
  void count_error(std::string_view code);
  /// `kind`: buffered, streamed, process, shell.
  void count_exec(std::string_view kind);
  /// A part of a create ("total": all of it).
  void observe_stage(std::string_view stage, double ms);

  /// One that is looked up when it is asked for.
  struct Gauge {
    std::string_view name, help;
    /// Label's name and value (both empty: none), and the number.
    struct Sample {
      std::string_view label;
      std::string value;
      double number = 0;
    };
    std::vector<Sample> samples;
  };
  /// The text format, version 0.0.4.
  [[nodiscard]] std::string text(const std::vector<Gauge>& gauges) const;

 private:
  static constexpr std::array<double, 12> kBounds{0.001, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                  0.25,  0.5,   1,    2.5,   10,   60};
  struct Histogram {
    std::array<std::uint64_t, 13> counts{};  ///< One for each bound, and what is beyond.
    double sum = 0;
    std::uint64_t total = 0;
    void add(double seconds);
  };
  static void write_histogram(std::string& out, std::string_view name, std::string_view help,
                              const std::map<std::string, Histogram>& histograms);
  static void write_counters(std::string& out, std::string_view name, std::string_view help,
                             const std::map<std::string, std::uint64_t>& counters);

  mutable std::mutex mutex_;
  // Under mutex_; by their labels, as they are written.
  std::map<std::string, std::uint64_t> requests_, errors_, execs_;
  std::map<std::string, Histogram> stages_, durations_;
};

}  // namespace drupe::api
