#include "cli/progress_view.h"

#include <algorithm>

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/files.h"
#include "cli/values.h"

namespace drupe::cli {
namespace {

constexpr auto kSilence = std::chrono::seconds(1);
constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kRepeatLine = std::chrono::seconds(15);

std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

void print(const std::string& text) {
  // Progress that cannot be shown is no reason to fail.
  (void)write_all(STDERR_FILENO, text);
}

}  // namespace

std::string progress_line(std::string_view stage, std::uint64_t done, std::uint64_t total,
                          std::size_t columns) {
  std::string line = printable(stage);
  if (total > 0) {
    const std::uint64_t shown = std::min(done, total);
    const auto percent =
        static_cast<unsigned>(static_cast<double>(shown) * 100.0 / static_cast<double>(total));
    constexpr unsigned kCells = 24;
    const unsigned filled = percent * kCells / 100;
    line += " [" + std::string(filled, '#') + std::string(kCells - filled, '.') + "] " +
            std::to_string(percent) + " %";
    // Counts of small things (steps, layers) need no unit.
    if (total >= 4096) line += ", " + format_size(shown) + " of " + format_size(total);
  } else if (done >= 4096) {
    line += ", " + format_size(done);
  }
  if (line.size() > columns) line.resize(columns);
  return line;
}

ProgressView::ProgressView(bool quiet) : quiet_(quiet), terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressView::report(std::string_view stage, std::uint64_t done, std::uint64_t total) {
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  stage_ = stage;
  done_ = done;
  total_ = total;
  if (running_) return;
  running_ = true;
  begun_ = Clock::now();
  printed_stage_.clear();
  // Signals belong to the thread that handles them; the new thread inherits this mask.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void ProgressView::finish() {
  {
    const std::lock_guard lock(mutex_);
    if (!running_) return;
    running_ = false;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (drawn_) print("\r\x1b[K");
  drawn_ = false;
}

void ProgressView::run() {
  std::unique_lock lock(mutex_);
  wake_.wait_until(lock, begun_ + kSilence, [this] { return !running_; });
  while (running_) {
    if (terminal_) {
      draw(Clock::now());
    } else {
      draw_line(Clock::now());
    }
    wake_.wait_for(lock, kRedraw, [this] { return !running_; });
  }
}

void ProgressView::draw(Clock::time_point now) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - begun_).count();
  const std::string time = " (" + std::to_string(seconds) + " s)";
  print("\r\x1b[K" + progress_line(stage_, done_, total_, terminal_columns() - time.size() - 1) + time);
  drawn_ = true;
}

void ProgressView::draw_line(Clock::time_point now) {
  if (stage_ == printed_stage_ && now - printed_at_ < kRepeatLine) return;
  const bool again = stage_ == printed_stage_;
  printed_stage_ = stage_;
  printed_at_ = now;
  std::string line = printable(stage_);
  if (total_ > 0 && done_ > 0)
    line += ", " +
            std::to_string(static_cast<unsigned>(static_cast<double>(std::min(done_, total_)) * 100.0 /
                                                 static_cast<double>(total_))) +
            " %";
  if (again)
    line += ", still (" +
            std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now - begun_).count()) + " s)";
  print("drupe: " + line + "\n");
}

}  // namespace drupe::cli
