#include "base/log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include <unistd.h>

#include "base/log_sink.h"

namespace drupe {
namespace {

constexpr std::size_t kMaxLine = 4096;

std::array<char, 32> g_name{"drupe"};
std::atomic<int> g_level{-1};
std::atomic<LogFormat> g_format{nullptr};

int level() {
  const int known = g_level.load(std::memory_order_relaxed);
  if (known >= 0) return known;
  const int fresh =
      static_cast<int>(std::getenv("DRUPE_DEBUG") != nullptr ? LogLevel::kDebug : LogLevel::kInfo);
  g_level.store(fresh, std::memory_order_relaxed);
  return fresh;
}

constexpr std::array<const char*, 4> kWords{"debug", "info", "warning", "error"};

}  // namespace

void set_log_name(std::string_view name) {
  const std::size_t size = std::min(name.size(), g_name.size() - 1);
  std::memcpy(g_name.data(), name.data(), size);
  g_name[size] = '\0';
}

void set_log_level(LogLevel level) {
  g_level.store(static_cast<int>(level), std::memory_order_relaxed);
}

void set_log_format(LogFormat format) {
  g_format.store(format);
}

void log(LogLevel level_of_line, std::string_view text) {
  if (static_cast<int>(level_of_line) < level()) return;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  ::gmtime_r(&now.tv_sec, &parts);
  std::array<char, 40> stamp{};
  const std::size_t used = std::strftime(stamp.data(), stamp.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  std::string line(stamp.data(), used);
  if (const LogFormat format = g_format.load(); format != nullptr) {
    line = format(line, g_name.data(), kWords[static_cast<std::size_t>(level_of_line)],
                  text.substr(0, kMaxLine));
    [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, line.data(), line.size());
    return;
  }
  line += ' ';
  line += g_name.data();
  line += ' ';
  line += kWords[static_cast<std::size_t>(level_of_line)];
  line += ": ";
  for (const char c : text.substr(0, kMaxLine))
    line += (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ? '?' : c;
  line += '\n';
  // A log line that cannot be written has nowhere else to go.
  [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace drupe
