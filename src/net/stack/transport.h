// UDP and TCP headers.
#pragma once

#include <cstdint>
#include <optional>

#include "net/stack/ip.h"

namespace drupe::net {

inline constexpr std::size_t kUdpHeader = 8;
inline constexpr std::size_t kTcpHeader = 20;

struct UdpDatagram {
  std::uint16_t source_port = 0, destination_port = 0;
  ByteView payload;
};
/// RFC 768. The checksum may be absent over IPv4, not over IPv6 (RFC 8200 8.1). Port 0 is refused.
[[nodiscard]] Parsed<UdpDatagram> parse_udp(const IpPacket& packet);
/// Writes the header at `out`; `payload` follows it in the frame.
void write_udp(std::uint8_t* out, const IpPacket& packet, std::uint16_t source_port,
               std::uint16_t destination_port, ByteView payload);

/// Bits of the TCP header (RFC 9293 3.1).
namespace tcp_flag {
inline constexpr std::uint8_t kFin = 1;
inline constexpr std::uint8_t kSyn = 2;
inline constexpr std::uint8_t kRst = 4;
inline constexpr std::uint8_t kPsh = 8;
inline constexpr std::uint8_t kAck = 16;
}  // namespace tcp_flag

struct TcpSegment {
  std::uint16_t source_port = 0, destination_port = 0;
  std::uint32_t seq = 0, ack = 0;
  std::uint8_t flags = 0;
  std::uint16_t window = 0;  ///< As on the wire, not scaled.
  std::optional<std::uint16_t> mss;
  std::optional<std::uint8_t> window_scale;  ///< RFC 7323 2.2; at most 14.
  ByteView payload;

  [[nodiscard]] bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
  /// Sequence numbers it takes: payload, SYN and FIN.
  [[nodiscard]] std::uint32_t length() const {
    return static_cast<std::uint32_t>(payload.size()) + (has(tcp_flag::kSyn) ? 1U : 0U) +
           (has(tcp_flag::kFin) ? 1U : 0U);
  }
};
/// Without payload, window or options.
[[nodiscard]] inline TcpSegment bare_segment(std::uint32_t seq, std::uint32_t ack, std::uint8_t flags) {
  TcpSegment segment;
  segment.seq = seq;
  segment.ack = ack;
  segment.flags = flags;
  return segment;
}
/// RFC 9293. Unknown options are skipped; an option whose length is wrong ends the list (the segment stays
/// valid, as in Linux). Port 0 is refused. Urgent data is treated as ordinary data.
[[nodiscard]] Parsed<TcpSegment> parse_tcp(const IpPacket& packet);
/// Largest header that write_tcp() makes.
inline constexpr std::size_t kMaxTcpHeader = kTcpHeader + 8;
/// Writes the header of `segment` at `out`, with the options that are set, and returns its size. The payload
/// is `first` and then `second`, which may be empty; segment.payload is not used.
std::size_t write_tcp(std::uint8_t* out, const IpPacket& packet, const TcpSegment& segment, ByteView first,
                      ByteView second);
[[nodiscard]] std::size_t tcp_header_size(const TcpSegment& segment);

}  // namespace drupe::net
