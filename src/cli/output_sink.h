// Writes a stream of bytes to stdout or stderr without ever blocking the event loop, however slow the reader
// is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/event_loop.h"
#include "base/unique_fd.h"

namespace drupe::cli {

/// Used by the loop's thread. What a write could not take at once is kept; the sender's credit bounds it,
/// since `on_taken` is called only for bytes that have left.
class OutputSink {
 public:
  struct Events {
    std::function<void(std::uint32_t bytes)> on_taken;
    /// The reader is gone (or the disk full); called once. Later bytes are dropped and count as taken.
    std::function<void(int error)> on_broken;
  };

  /// `fd` is borrowed. Terminals and pipes are opened a second time, so that O_NONBLOCK does not hit those
  /// who share them.
  OutputSink(EventLoop& loop, int fd);
  ~OutputSink();
  OutputSink(const OutputSink&) = delete;
  OutputSink& operator=(const OutputSink&) = delete;

  void set_events(Events events) { events_ = std::move(events); }
  void write(std::string_view bytes);
  [[nodiscard]] bool empty() const { return pending_.empty(); }
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  enum class Kind : std::uint8_t {
    kDirect,       ///< Never blocks for long: a regular file, /dev/null.
    kNonBlocking,  ///< A descriptor of our own with O_NONBLOCK.
    kSocket,       ///< send() with MSG_DONTWAIT.
    kPolled,       ///< Neither is possible: small writes when poll() says so.
  };
  void flush();
  [[nodiscard]] long write_some(std::string_view bytes) const;
  void fail(int error);

  EventLoop& loop_;
  UniqueFd own_;
  int fd_;
  Kind kind_ = Kind::kDirect;
  Events events_;
  std::string pending_;
  std::size_t offset_ = 0;  ///< Of the first byte of pending_ that was not written.
  bool watched_ = false;
  bool broken_ = false;
};

}  // namespace drupe::cli
