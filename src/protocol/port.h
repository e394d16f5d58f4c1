// One end of a frame connection on an event loop: a virtio-serial port in the guest, its socket on the host,
// or a client's connection to a shim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "base/event_loop.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/frame.h"

namespace drupe {

/// Owns a non-blocking descriptor. Sends never block: they queue, and the queue is written after the current
/// callbacks. Senders of bulk data stop at !has_room() and go on at on_room; the queue itself refuses to grow
/// beyond its limit by breaking the connection. Used by the loop's thread only; may be destroyed inside its
/// own callbacks.
class Port {
 public:
  struct Options {
    std::size_t high_water = std::size_t{256} * 1024;  ///< has_room() is false from here on.
    std::size_t limit =
        std::size_t{16} * 1024 * 1024;  ///< A peer that does not read for so long is given up.
    /// True for sockets. A virtio port hangs up while the host's end is closed and comes back.
    bool hangup_is_end = true;
  };
  struct Callbacks {
    /// An error breaks the connection.
    std::function<Status(const Frame&)> on_frame;
    /// When set, bytes that are no frames, and an error of on_frame, do not break the connection: this is
    /// told, and then the next marker of any epoch is awaited, from the refused bytes on. So a marker is
    /// understood at any time.
    std::function<void(Error)> on_desync;
    /// Once, at the end of the connection or after hostile bytes; nothing is sent or delivered afterwards.
    std::function<void(Error)> on_broken;
    /// The marker awaited by await_marker() came; frames follow.
    std::function<void(std::uint64_t epoch)> on_marker;
    /// The queue has fallen below half of high_water after has_room() was false.
    std::function<void()> on_room;
  };

  static Result<std::unique_ptr<Port>> create(EventLoop& loop, UniqueFd fd, Options options,
                                              Callbacks callbacks);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  void send(FrameType type, Channel channel, std::uint32_t id, std::string_view payload);
  /// Room for one frame's payload of up to `payload` bytes at the end of the queue, to read into without a
  /// copy. Valid until the next call on this object; commit() makes it a frame.
  [[nodiscard]] std::span<char> prepare(std::size_t payload);
  void commit(FrameType type, Channel channel, std::uint32_t id, std::size_t payload);
  /// Bytes that are no frame (markers), or whole frames made elsewhere (append_open_frames()).
  void send_raw(std::string_view bytes);
  void send_marker(std::uint64_t epoch);
  /// Forgets the incomplete frame and throws bytes away until a marker with the epoch `expected` (0: any)
  /// comes.
  void await_marker(std::uint64_t expected);
  /// While paused nothing is read, so the peer is held back.
  void pause_reading(bool paused);

  [[nodiscard]] bool has_room() const { return queued() < options_.high_water; }
  [[nodiscard]] std::size_t queued() const { return end_ - begin_; }
  [[nodiscard]] bool broken() const { return broken_; }
  /// Calls back once when everything queued so far and later has been written.
  void when_flushed(std::function<void()> call);
  /// Gives back a large buffer when nothing is queued.
  void give_back();
  /// Drops what is queued and not yet written. Only between epochs: it may cut a frame.
  void drop_queue();

 private:
  Port(EventLoop& loop, UniqueFd fd, Options options, Callbacks callbacks);
  void on_ready(std::uint32_t events);
  void read_some();
  ssize_t gather(std::span<std::uint8_t> chunk);
  Status take(ByteView bytes);
  void schedule_flush();
  void flush();
  void after_flush();
  void reserve(std::size_t more);
  void update_watch();
  void hung_up();
  void break_off(Error error);

  EventLoop& loop_;
  UniqueFd fd_;
  Options options_;
  Callbacks callbacks_;
  FrameParser parser_;
  MarkerScanner scanner_;
  bool awaiting_marker_ = false;
  bool paused_ = false;
  bool broken_ = false;
  bool starved_ = false;  ///< has_room() was false and on_room is owed.
  bool flush_scheduled_ = false;
  bool hung_up_ = false;  ///< The host's end of a virtio port is closed: watched by edges until it opens.
  std::uint32_t watched_ = 0;
  std::unique_ptr<char[]> buffer_;
  std::size_t capacity_ = 0, begin_ = 0, end_ = 0;
  std::function<void()> on_flushed_;
  /// Tells deferred calls and callbacks on the stack that the object is gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace drupe
