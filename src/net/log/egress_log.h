// The bounded record of what a sandbox asked the network for and what was decided.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/policy/address.h"

namespace drupe::net {

enum class LogKind : std::uint8_t {
  kName,        ///< A query for a name.
  kAnswer,      ///< An address that was dropped from an answer.
  kConnection,  ///< A TCP connection or the first datagram of a UDP flow.
  kRequest,     ///< A name that a client said on a connection (TLS server name, HTTP Host).
};

struct LogEntry {
  LogKind kind = LogKind::kName;
  bool allowed = false;
  std::string name;                  ///< May be empty for connections.
  std::string detail;                ///< Record type, "tcp", "udp", or why a request was refused.
  std::optional<IpAddress> address;  ///< Destination.
  std::uint16_t port = 0;            ///< 0: none.
  std::string rule;                  ///< The rule that decided (Decision::rule).

  // Filled in by the log.
  std::uint64_t sequence = 0;  ///< From 1, without gaps.
  std::int64_t first_ms = 0;   ///< Milliseconds since 1970, of the first of `count` equal events.
  std::int64_t last_ms = 0;
  std::uint64_t count = 1;
};

/// {"seq":1,"time":"2026-01-02T03:04:05.678Z",...}, without a line end. Text that is not printable ASCII is
/// escaped.
[[nodiscard]] std::string to_json_line(const LogEntry& entry);
/// "2026-01-02T03:04:05.678Z refused name evil.example TXT (no rule) x3", without a line end.
[[nodiscard]] std::string to_text_line(const LogEntry& entry);

struct LogCounters {
  std::uint64_t allowed = 0;  ///< Events, merged ones counted one by one.
  std::uint64_t refused = 0;
  std::uint64_t dropped = 0;  ///< Entries that made room for newer ones.
};

/// A ring of entries, newest kept. An event equal to one of the last kMergeDepth entries within kMergeWindow
/// only raises its count, so that a client that repeats itself does not push everything else out. One thread.
class EgressLog {
 public:
  /// `wall_clock_ms` gives milliseconds since 1970.
  using WallClock = std::function<std::int64_t()>;
  explicit EgressLog(WallClock wall_clock, std::size_t capacity = kCapacity);

  void add(LogEntry entry, std::chrono::steady_clock::time_point now);
  /// Goes on from what an earlier log has read(). Precondition: nothing was added; sequences have no gaps.
  void restore(std::vector<LogEntry> entries);
  /// `call` for every entry that is new or has another count.
  void on_entry(std::function<void(const LogEntry&)> call) { on_entry_ = std::move(call); }
  /// Entries with a sequence above `after`, oldest first, at most `most`. A follower sees a merged entry
  /// once, with the count it had then. A gap between `after` and the first one was dropped.
  [[nodiscard]] std::vector<LogEntry> read(std::uint64_t after, std::size_t most) const;
  [[nodiscard]] const LogCounters& counters() const { return counters_; }
  [[nodiscard]] std::uint64_t last_sequence() const { return next_ - 1; }
  [[nodiscard]] std::size_t size() const { return ring_.size(); }

  static constexpr std::size_t kCapacity = 1024;
  static constexpr std::size_t kMergeDepth = 32;
  static constexpr std::chrono::seconds kMergeWindow{10};
  static constexpr std::size_t kLongestText = 512;  ///< Of each text; longer ones are cut and end with "...".

 private:
  struct Slot {
    LogEntry entry;
    std::chrono::steady_clock::time_point last;
  };
  void note(const LogEntry& entry) const {
    if (on_entry_) on_entry_(entry);
  }
  WallClock wall_clock_;
  std::function<void(const LogEntry&)> on_entry_;
  std::size_t capacity_;
  std::deque<Slot> ring_;
  std::uint64_t next_ = 1;
  LogCounters counters_;
};

}  // namespace drupe::net
