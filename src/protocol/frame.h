// Frames between host and guest, and between a sandbox's shim and its local clients. docs/protocol.md is the
// text.
//
// A frame is a 16-byte little-endian header and a payload; the whole is at most 64 KiB. Each virtio-serial
// port starts, and starts again after every freeze, with a 16-byte marker that the host writes and the guest
// echoes; each side throws away bytes until it has seen it, so bytes of an earlier epoch never become frames.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"

namespace drupe {

inline constexpr std::uint32_t kProtocolVersion = 1;
inline constexpr std::size_t kFrameHeaderSize = 16;
inline constexpr std::size_t kMaxFrameSize = 65536;
inline constexpr std::size_t kMaxPayload = kMaxFrameSize - kFrameHeaderSize;
/// Bytes a sender may have in flight on one channel of a stream before the receiver grants more.
inline constexpr std::uint32_t kInitialCredit = 256 * 1024;
inline constexpr std::string_view kControlPortName = "drupe.control";
inline constexpr std::string_view kBulkPortName = "drupe.bulk";

enum class FrameType : std::uint8_t {
  kRequest =
      1,  ///< Control port. id = request, payload: u16 RequestKind, body. Host to guest (or client to shim).
  kReply = 2,     ///< Control port. id = request, payload: ReplyHead, body.
  kEvent = 3,     ///< Control port, unsolicited. payload: u16 EventKind, body.
  kOpen = 4,      ///< Bulk port. id = new stream, chosen by the host. payload: OpenRequest.
  kOpened = 5,    ///< payload: OpenedReply.
  kData = 6,      ///< channel = Channel. payload: bytes, never empty.
  kEof = 7,       ///< channel = Channel. No more data will come on it.
  kCredit = 8,    ///< channel = Channel. payload: u32 bytes the receiver of that channel takes beyond what it
                  ///< granted before.
  kSignal = 9,    ///< payload: i32 signal number, u8 1 = whole tree, 0 = leader only.
  kResize = 10,   ///< payload: u16 rows, u16 columns.
  kExit = 11,     ///< Guest to host, the last frame of a stream. payload: ExitFacts.
  kReset = 12,    ///< Either side, the last frame of a stream. payload: text, the reason.
  kBarrier = 13,  ///< Bulk port, id = barrier. "I send nothing after this until the next marker."
};

enum class Channel : std::uint8_t { kStdin = 0, kStdout = 1, kStderr = 2 };
inline constexpr std::size_t kChannels = 3;

struct Frame {
  FrameType type{};
  Channel channel{};
  std::uint32_t id = 0;
  ByteView payload;  ///< Valid only during the callback that delivers it.
};

/// Appends one frame to `out`. Header: u32 payload length, u8 type, u8 channel, u16 zero, u32 id, u32 zero.
/// Precondition: payload.size() <= kMaxPayload.
void append_frame(std::string& out, FrameType type, Channel channel, std::uint32_t id,
                  std::string_view payload);

/// Writes the 16 header bytes at `out`, for callers that have put the payload behind them already.
void write_frame_header(char* out, FrameType type, Channel channel, std::uint32_t id,
                        std::uint32_t payload_size);

/// Cuts a byte stream into frames. Hostile input gives an error and the parser must not be used again until
/// reset().
class FrameParser {
 public:
  /// Calls `on_frame` for each complete frame. Buffers at most one incomplete frame. Stops at the first
  /// error: unknown type or channel, length over the bound, reserved bytes not zero, or an error of
  /// `on_frame`.
  Status feed(ByteView bytes, const std::function<Status(const Frame&)>& on_frame);
  void reset() { partial_.clear(); }
  /// After an error of feed(): the bytes from the frame that was refused on, or after the one whose callback
  /// failed.
  [[nodiscard]] std::string take_leftover() { return std::exchange(leftover_, {}); }
  /// True between frames.
  [[nodiscard]] bool idle() const { return partial_.empty(); }

 private:
  std::unexpected<Error> refuse(Error error, std::string_view before, ByteView rest);

  std::string partial_;
  std::string leftover_;
};

// Payloads of the small stream frames.
[[nodiscard]] std::string encode_credit(std::uint32_t bytes);
Result<std::uint32_t> decode_credit(ByteView payload);
struct SignalPayload {
  std::int32_t signal = 0;
  bool tree = false;
};
[[nodiscard]] std::string encode_signal(const SignalPayload& signal);
Result<SignalPayload> decode_signal(ByteView payload);
struct ResizePayload {
  std::uint16_t rows = 0, columns = 0;
};
[[nodiscard]] std::string encode_resize(const ResizePayload& size);
Result<ResizePayload> decode_resize(ByteView payload);

/// Eight fixed bytes and the eight bytes of the epoch, which is never 0.
using Marker = std::array<std::uint8_t, 16>;
[[nodiscard]] Marker make_marker(std::uint64_t epoch);

/// Finds a marker in a byte stream that may hold anything before it.
class MarkerScanner {
 public:
  /// Any epoch is accepted when `expected` is 0 (the guest), else only that one (the host).
  explicit MarkerScanner(std::uint64_t expected = 0) : expected_(expected) {}
  /// Consumes bytes from the front of `bytes` up to the end of the first marker and returns true, or consumes
  /// all of them and returns false. Keeps at most 15 bytes.
  bool scan(ByteView& bytes);
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }

 private:
  std::uint64_t expected_;
  std::uint64_t epoch_ = 0;
  std::string tail_;
};

}  // namespace drupe
