// Shows on stderr what a long operation is doing: a bar that is redrawn on a terminal, plain lines elsewhere.
// Nothing is shown in the first second, so quick commands stay silent.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace drupe::cli {

/// Owns a thread while an operation is shown. report() and finish() may be called by any thread.
class ProgressView {
 public:
  explicit ProgressView(bool quiet);
  ~ProgressView() { finish(); }
  ProgressView(const ProgressView&) = delete;
  ProgressView& operator=(const ProgressView&) = delete;

  void set_quiet(bool quiet) { quiet_ = quiet; }
  /// `total` 0: not known.
  void report(std::string_view stage, std::uint64_t done, std::uint64_t total);
  /// Ends the operation and wipes the bar. Must come before anything else is written to the terminal.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  void draw(Clock::time_point now);
  void draw_line(Clock::time_point now);

  bool quiet_;
  const bool terminal_;
  std::mutex mutex_;  // Guards all below.
  std::condition_variable wake_;
  std::jthread thread_;
  bool running_ = false;
  bool drawn_ = false;
  std::string stage_, printed_stage_;
  std::uint64_t done_ = 0, total_ = 0;
  Clock::time_point begun_, printed_at_;
};

/// One line: the stage, and where `total` is known a bar, a percentage and sizes. At most `columns` wide.
[[nodiscard]] std::string progress_line(std::string_view stage, std::uint64_t done, std::uint64_t total,
                                        std::size_t columns);

}  // namespace drupe::cli
