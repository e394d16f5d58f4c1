// The shim's side of the two ports into the guest: markers, requests to the agent, streams with their
// credits, and the quiet time around a save. Everything that comes in is hostile.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/event_loop.h"
#include "base/result.h"
#include "protocol/messages.h"
#include "protocol/port.h"

namespace drupe {

/// Receives the frames of one stream to the guest.
class GuestStream {
 public:
  virtual ~GuestStream() = default;
  /// kOpened, kData, kEof, kCredit, kExit or kReset. After one of the last two the link has forgotten the
  /// stream.
  virtual void on_guest_frame(const Frame& frame) = 0;
};

/// Uses the machine's two descriptors through duplicates of its own. Streams are borrowed: reset() them
/// before they go. Used by the loop's thread only. The waiting calls run the loop nested, so they belong into
/// deferred calls, never into callbacks of a connection.
class GuestLink {
 public:
  using Reply = std::function<void(Result<std::string>)>;
  struct Callbacks {
    std::function<void(EventKind, std::string_view text)> on_event;
    /// Once. `hostile`: the guest broke the protocol or does not read; else the ports are gone (the machine
    /// ended). Pending requests have failed before; streams hear nothing.
    std::function<void(const Error&, bool hostile)> on_broken;
  };
  static constexpr std::size_t kMaxStreams = 256;

  static Result<std::unique_ptr<GuestLink>> create(EventLoop& loop, int control_fd, int bulk_fd,
                                                   Callbacks callbacks);

  /// Sends the markers of `epoch` and waits for both echoes. What was held back is sent when the epoch is the
  /// one before, else dropped.
  Status handshake(std::uint64_t epoch, Deadline deadline);
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }

  void request(std::uint16_t kind, std::string_view body, Reply done);
  Result<std::string> call(RequestKind kind, std::string_view body, Deadline deadline);

  /// kLimit beyond kMaxStreams, kBusy while the guest is far behind with reading.
  Result<std::uint32_t> open(std::string_view encoded, GuestStream& stream);
  /// To the stream's stdin; an error when the guest has not granted so much. Unknown streams swallow
  /// everything.
  Status send_data(std::uint32_t id, std::string_view bytes);
  /// Lets the guest send `bytes` more on `channel`.
  Status grant(std::uint32_t id, Channel channel, std::uint32_t bytes);
  /// kEof, kSignal, kResize.
  void send(FrameType type, std::uint32_t id, std::string_view payload);
  /// Ends the stream from this side and forgets it.
  void reset(std::uint32_t id, std::string_view reason);
  /// Bytes of stdin that the guest takes now.
  [[nodiscard]] std::size_t may_send(std::uint32_t id) const;
  [[nodiscard]] std::size_t streams() const { return streams_.size(); }
  /// The stream object goes: frames for it are passed over from now on.
  void forget(std::uint32_t id) { streams_.erase(id); }
  void forget_streams() { streams_.clear(); }

  /// Barrier and kFreeze: afterwards user work and file systems stand still and nothing is in flight. From
  /// its beginning on everything sent is held back until handshake() with the same epoch, or until this call
  /// fails. `work_deadline` bounds the agent's freezing; this call waits until `deadline` for its answer.
  /// When even that is late, the link thaws the guest as soon as it comes.
  Status freeze(std::chrono::milliseconds work_deadline, Deadline deadline);
  /// After freeze(): the guest goes on behind other descriptors (of a machine restored from the one that was
  /// saved meanwhile). Sends markers of the same epoch there and uses them from the first echo on; an error
  /// leaves the link on the ports that it had. Nothing is lost between the two: while frozen nothing is in
  /// flight, neither in a socket nor in the machine.
  Status move(int control_fd, int bulk_fd, Deadline deadline);
  /// After freeze(): markers of the same epoch, unless move() has sent them. Then requests are answered.
  Status reopen(Deadline deadline);
  /// reopen(), if it was not called, and kThaw.
  Status thaw(Deadline deadline);

  [[nodiscard]] bool broken() const { return broken_; }
  /// Both ports have ended and everything that came through them has been delivered.
  [[nodiscard]] bool drained() const { return control_->broken() && bulk_->broken(); }
  /// Everything sent so far has left this process.
  [[nodiscard]] bool flushed() const { return control_->queued() == 0 && bulk_->queued() == 0; }

 private:
  struct Entry {
    GuestStream* stream = nullptr;
    std::uint32_t may_send = kInitialCredit;
    std::array<std::uint32_t, kChannels> granted{kInitialCredit, kInitialCredit, kInitialCredit};
  };
  // Their constructors are written out because clang takes a class with initializers for unconstructible
  // inside of the class around it.
  struct Freeze {
    Freeze() {}
    std::uint32_t barrier = 0;
    bool barrier_came = false;
    bool abandoned = false;
    std::optional<Result<std::string>> reply;
  };

  /// Ports that have not proved yet that the guest is behind them.
  struct Trial {
    Trial() {}
    std::uint64_t serial = 0;
    std::unique_ptr<Port> control, bulk;
    std::optional<Error> broken;
  };

  explicit GuestLink(EventLoop& loop, Callbacks callbacks) : loop_(loop), callbacks_(std::move(callbacks)) {}
  Status make_ports(int control_fd, int bulk_fd, std::unique_ptr<Port>& control, std::unique_ptr<Port>& bulk);
  Result<std::unique_ptr<Port>> make_port(int fd, std::function<Status(const Frame&)> on_frame);
  [[nodiscard]] bool on_trial(std::uint64_t serial) const { return trial_ && trial_->serial == serial; }
  void adopt_trial();
  void begin_handshake(std::uint64_t epoch);
  void on_marker();
  Status on_control(const Frame& frame);
  Status on_bulk(const Frame& frame);
  Status on_stream_frame(Entry& entry, const Frame& frame);
  void on_port_broken(const Error& error);
  void on_late_freeze();
  Status exchange_markers(std::uint64_t epoch, Deadline deadline);
  Status await_markers(Deadline deadline);
  void release_control();
  void release_bulk();
  void send_control(std::uint32_t id, std::string_view payload);
  void send_bulk(FrameType type, Channel channel, std::uint32_t id, std::string_view payload);
  void check_held();

  EventLoop& loop_;
  Callbacks callbacks_;
  std::unique_ptr<Port> control_, bulk_;
  std::unordered_map<std::uint32_t, Entry> streams_;
  std::unordered_map<std::uint32_t, Reply> requests_;
  std::uint32_t next_stream_ = 1;
  std::uint32_t next_request_ = 1;
  std::uint32_t next_barrier_ = 1;
  std::uint64_t epoch_ = 0;
  int markers_awaited_ = 0;
  std::optional<Freeze> freeze_;
  std::uint64_t port_serial_ = 0;  ///< Of the newest pair of ports.
  std::optional<Trial> trial_;
  bool moved_ = false;                           ///< Since the freeze: markers have been sent.
  bool reopened_ = false;                        ///< Since the freeze.
  bool hold_control_ = true, hold_bulk_ = true;  ///< Before the first handshake too.
  std::string held_control_, held_bulk_;
  bool broken_ = false;
};

}  // namespace drupe
