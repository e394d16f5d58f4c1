#include "protocol/frame.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace drupe {
namespace {

constexpr std::string_view kMarkerMagic{
    "\x93"
    "DRUPE\r\n",
    8};
constexpr auto kLastType = static_cast<std::uint8_t>(FrameType::kBarrier);

struct Header {
  std::uint32_t size;
  std::uint8_t type;
  std::uint8_t channel;
  std::uint32_t id;
};

Result<Header> read_header(ByteView bytes) {
  ByteReader reader(bytes.first(kFrameHeaderSize));
  const auto size = reader.number<std::uint32_t>();
  const auto type = reader.number<std::uint8_t>();
  const auto channel = reader.number<std::uint8_t>();
  const auto reserved_half = reader.number<std::uint16_t>();
  const auto id = reader.number<std::uint32_t>();
  const auto reserved = reader.number<std::uint32_t>();
  if (size > kMaxPayload) return fail(ErrorCode::kIntegrity, "A frame is longer than the protocol allows");
  if (type == 0 || type > kLastType) return fail(ErrorCode::kIntegrity, "A frame has an unknown type");
  if (channel >= kChannels) return fail(ErrorCode::kIntegrity, "A frame has an unknown channel");
  if (reserved_half != 0 || reserved != 0)
    return fail(ErrorCode::kIntegrity, "A frame's reserved bytes are not zero");
  if (size == 0 && type == static_cast<std::uint8_t>(FrameType::kData))
    return fail(ErrorCode::kIntegrity, "A data frame is empty");
  return Header{size, type, channel, id};
}

Status deliver(const Header& header, ByteView payload, const std::function<Status(const Frame&)>& on_frame) {
  return on_frame(
      Frame{static_cast<FrameType>(header.type), static_cast<Channel>(header.channel), header.id, payload});
}

std::unexpected<Error> malformed(std::string_view what) {
  return fail(ErrorCode::kIntegrity, "A " + std::string(what) + " frame is malformed");
}

}  // namespace

void write_frame_header(char* out, FrameType type, Channel channel, std::uint32_t id,
                        std::uint32_t payload_size) {
  std::memset(out, 0, kFrameHeaderSize);
  std::memcpy(out, &payload_size, 4);
  out[4] = static_cast<char>(type);
  out[5] = static_cast<char>(channel);
  std::memcpy(out + 8, &id, 4);
}

void append_frame(std::string& out, FrameType type, Channel channel, std::uint32_t id,
                  std::string_view payload) {
  char header[kFrameHeaderSize];
  write_frame_header(header, type, channel, id, static_cast<std::uint32_t>(payload.size()));
  out.append(header, sizeof header);
  out.append(payload);
}

std::unexpected<Error> FrameParser::refuse(Error error, std::string_view before, ByteView rest) {
  leftover_.assign(before).append(as_text(rest));
  return std::unexpected(std::move(error));
}

Status FrameParser::feed(ByteView bytes, const std::function<Status(const Frame&)>& on_frame) {
  while (!bytes.empty()) {
    if (partial_.empty() && bytes.size() >= kFrameHeaderSize) {
      // The common case: the frame is whole in the caller's buffer and is not copied.
      const auto header = read_header(bytes);
      if (!header) return refuse(header.error(), {}, bytes);
      const std::size_t whole = kFrameHeaderSize + header->size;
      if (bytes.size() >= whole) {
        auto delivered = deliver(*header, bytes.subspan(kFrameHeaderSize, header->size), on_frame);
        bytes = bytes.subspan(whole);
        if (!delivered) return refuse(std::move(delivered).error(), {}, bytes);
        continue;
      }
    }
    std::size_t want = kFrameHeaderSize;
    if (partial_.size() >= kFrameHeaderSize) {
      DRUPE_ASSIGN(const Header header, read_header(as_bytes(partial_)));
      want += header.size;
    }
    const std::size_t take = std::min(bytes.size(), want - std::min(want, partial_.size()));
    partial_.append(as_text(bytes.first(take)));
    bytes = bytes.subspan(take);
    if (partial_.size() < kFrameHeaderSize) return {};
    const auto header = read_header(as_bytes(partial_));
    if (!header) return refuse(header.error(), std::exchange(partial_, {}), bytes);
    if (partial_.size() < kFrameHeaderSize + header->size) continue;
    // The buffer leaves the parser before the callback, so a reset() from inside it does no harm.
    const std::string frame = std::exchange(partial_, {});
    auto delivered = deliver(*header, as_bytes(frame).subspan(kFrameHeaderSize), on_frame);
    if (!delivered) return refuse(std::move(delivered).error(), {}, bytes);
  }
  return {};
}

std::string encode_credit(std::uint32_t bytes) {
  return ByteWriter().number(bytes).take();
}

Result<std::uint32_t> decode_credit(ByteView payload) {
  ByteReader reader(payload);
  const auto bytes = reader.number<std::uint32_t>();
  if (!reader.done()) return malformed("credit");
  return bytes;
}

std::string encode_signal(const SignalPayload& signal) {
  return ByteWriter().number(signal.signal).flag(signal.tree).take();
}

Result<SignalPayload> decode_signal(ByteView payload) {
  ByteReader reader(payload);
  SignalPayload signal;
  signal.signal = reader.number<std::int32_t>();
  signal.tree = reader.flag();
  if (!reader.done() || signal.signal < 0 || signal.signal > 64) return malformed("signal");
  return signal;
}

std::string encode_resize(const ResizePayload& size) {
  return ByteWriter().number(size.rows).number(size.columns).take();
}

Result<ResizePayload> decode_resize(ByteView payload) {
  ByteReader reader(payload);
  ResizePayload size;
  size.rows = reader.number<std::uint16_t>();
  size.columns = reader.number<std::uint16_t>();
  if (!reader.done()) return malformed("resize");
  return size;
}

Marker make_marker(std::uint64_t epoch) {
  Marker marker{};
  std::memcpy(marker.data(), kMarkerMagic.data(), kMarkerMagic.size());
  std::memcpy(marker.data() + kMarkerMagic.size(), &epoch, sizeof epoch);
  return marker;
}

bool MarkerScanner::scan(ByteView& bytes) {
  constexpr std::size_t kMarkerSize = sizeof(Marker);
  const std::size_t before = tail_.size();
  tail_.append(as_text(bytes));
  for (std::size_t at = tail_.find(kMarkerMagic); at != std::string::npos;
       at = tail_.find(kMarkerMagic, at + 1)) {
    if (tail_.size() - at < kMarkerSize) break;
    std::uint64_t epoch = 0;
    std::memcpy(&epoch, tail_.data() + at + kMarkerMagic.size(), sizeof epoch);
    if (epoch == 0 || (expected_ != 0 && epoch != expected_)) continue;
    epoch_ = epoch;
    // A marker never lies wholly in the old tail, which is shorter than one.
    bytes = bytes.subspan(at + kMarkerSize - before);
    tail_.clear();
    return true;
  }
  bytes = {};
  if (tail_.size() >= kMarkerSize) tail_.erase(0, tail_.size() - (kMarkerSize - 1));
  return false;
}

}  // namespace drupe
