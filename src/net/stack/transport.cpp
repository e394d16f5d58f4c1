#include "net/stack/transport.h"

#include "net/stack/checksum.h"

namespace drupe::net {
namespace {

// TCP option kinds (IANA).
constexpr std::uint8_t kOptionEnd = 0;
constexpr std::uint8_t kOptionNop = 1;
constexpr std::uint8_t kOptionMss = 2;
constexpr std::uint8_t kOptionWindowScale = 3;
constexpr std::uint8_t kMaxWindowScale = 14;  // RFC 7323 2.3

void parse_options(ByteView options, TcpSegment& segment) {
  while (!options.empty() && options[0] != kOptionEnd) {
    if (options[0] == kOptionNop) {
      options = options.subspan(1);
      continue;
    }
    if (options.size() < 2 || options[1] < 2 || options[1] > options.size()) return;
    if (options[0] == kOptionMss && options[1] == 4) segment.mss = load16(options.data() + 2);
    if (options[0] == kOptionWindowScale && options[1] == 3)
      segment.window_scale = std::min(options[2], kMaxWindowScale);
    options = options.subspan(options[1]);
  }
}

}  // namespace

Parsed<UdpDatagram> parse_udp(const IpPacket& packet) {
  if (packet.payload.size() < kUdpHeader) return std::unexpected(DropReason::kRunt);
  const std::uint8_t* at = packet.payload.data();
  const std::size_t length = load16(at + 4);
  if (length < kUdpHeader || length > packet.payload.size()) return std::unexpected(DropReason::kBadHeader);
  UdpDatagram parsed;
  parsed.source_port = load16(at);
  parsed.destination_port = load16(at + 2);
  parsed.payload = packet.payload.subspan(kUdpHeader, length - kUdpHeader);
  if (parsed.source_port == 0 || parsed.destination_port == 0) return std::unexpected(DropReason::kBadHeader);
  if (load16(at + 6) == 0) {
    if (packet.source.v6) return std::unexpected(DropReason::kBadChecksum);
    return parsed;
  }
  InternetChecksum sum;
  sum.add_pseudo_header(packet.source, packet.destination, kProtocolUdp, length);
  if (sum.add(packet.payload.first(length)).finish() != 0) return std::unexpected(DropReason::kBadChecksum);
  return parsed;
}

void write_udp(std::uint8_t* out, const IpPacket& packet, std::uint16_t source_port,
               std::uint16_t destination_port, ByteView payload) {
  const std::size_t length = kUdpHeader + payload.size();
  store16(out, source_port);
  store16(out + 2, destination_port);
  store16(out + 4, static_cast<std::uint16_t>(length));
  store16(out + 6, 0);
  InternetChecksum sum;
  sum.add_pseudo_header(packet.source, packet.destination, kProtocolUdp, length);
  const std::uint16_t value = sum.add(ByteView(out, kUdpHeader)).add(payload).finish();
  // Zero on the wire means "no checksum"; ones' complement has a second zero (RFC 768).
  store16(out + 6, value == 0 ? 0xffff : value);
}

Parsed<TcpSegment> parse_tcp(const IpPacket& packet) {
  if (packet.payload.size() < kTcpHeader) return std::unexpected(DropReason::kRunt);
  const std::uint8_t* at = packet.payload.data();
  const std::size_t header = std::size_t{at[12]} >> 4 << 2;
  if (header < kTcpHeader || header > packet.payload.size()) return std::unexpected(DropReason::kBadHeader);
  InternetChecksum sum;
  sum.add_pseudo_header(packet.source, packet.destination, kProtocolTcp, packet.payload.size());
  if (sum.add(packet.payload).finish() != 0) return std::unexpected(DropReason::kBadChecksum);
  TcpSegment parsed;
  parsed.source_port = load16(at);
  parsed.destination_port = load16(at + 2);
  if (parsed.source_port == 0 || parsed.destination_port == 0) return std::unexpected(DropReason::kBadHeader);
  parsed.seq = load32(at + 4);
  parsed.ack = load32(at + 8);
  parsed.flags = at[13];
  parsed.window = load16(at + 14);
  parsed.payload = packet.payload.subspan(header);
  parse_options(packet.payload.subspan(kTcpHeader, header - kTcpHeader), parsed);
  return parsed;
}

std::size_t tcp_header_size(const TcpSegment& segment) {
  return kTcpHeader + (segment.mss ? 4U : 0U) + (segment.window_scale ? 4U : 0U);
}

std::size_t write_tcp(std::uint8_t* out, const IpPacket& packet, const TcpSegment& segment, ByteView first,
                      ByteView second) {
  const std::size_t header = tcp_header_size(segment);
  store16(out, segment.source_port);
  store16(out + 2, segment.destination_port);
  store32(out + 4, segment.seq);
  store32(out + 8, segment.ack);
  out[12] = static_cast<std::uint8_t>(header / 4 << 4);
  out[13] = segment.flags;
  store16(out + 14, segment.window);
  store32(out + 16, 0);
  std::uint8_t* option = out + kTcpHeader;
  if (segment.mss) {
    option[0] = kOptionMss;
    option[1] = 4;
    store16(option + 2, *segment.mss);
    option += 4;
  }
  if (segment.window_scale) {
    option[0] = kOptionNop;
    option[1] = kOptionWindowScale;
    option[2] = 3;
    option[3] = *segment.window_scale;
  }
  InternetChecksum sum;
  sum.add_pseudo_header(packet.source, packet.destination, kProtocolTcp,
                        header + first.size() + second.size());
  store16(out + 16, sum.add(ByteView(out, header)).add(first).add(second).finish());
  return header;
}

}  // namespace drupe::net
