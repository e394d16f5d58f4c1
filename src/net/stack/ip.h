// Ethernet, IPv4 and IPv6 headers.
#pragma once

#include <cstdint>

#include "net/stack/packet_address.h"
#include "net/stack/wire.h"

namespace drupe::net {

inline constexpr std::size_t kEthernetHeader = 14;
inline constexpr std::size_t kIpv4Header = 20;
inline constexpr std::size_t kIpv6Header = 40;

// IEEE 802 numbers.
inline constexpr std::uint16_t kTypeIpv4 = 0x0800;
inline constexpr std::uint16_t kTypeArp = 0x0806;
inline constexpr std::uint16_t kTypeIpv6 = 0x86dd;

// IANA protocol numbers.
inline constexpr std::uint8_t kProtocolIcmp = 1;
inline constexpr std::uint8_t kProtocolTcp = 6;
inline constexpr std::uint8_t kProtocolUdp = 17;
inline constexpr std::uint8_t kProtocolIcmpv6 = 58;

struct EthernetFrame {
  MacAddress destination, source;
  std::uint16_t type = 0;
  ByteView payload;  ///< May have padding behind the packet.
};
[[nodiscard]] Parsed<EthernetFrame> parse_ethernet(ByteView frame);

struct IpPacket {
  PacketAddress source, destination;
  std::uint8_t protocol = 0;   ///< IPv6: what follows the extension headers.
  std::uint8_t hop_limit = 0;  ///< TTL.
  ByteView payload;            ///< Exactly as long as the header says.
};
/// RFC 791. Options are skipped and have no effect, source routes included. Fragments are refused.
[[nodiscard]] Parsed<IpPacket> parse_ipv4(ByteView packet);
/// RFC 8200. Hop-by-hop and destination options are skipped, at most eight headers; routing headers are
/// refused as bad, fragment headers (atomic ones too) as fragments.
[[nodiscard]] Parsed<IpPacket> parse_ipv6(ByteView packet);

/// Writes an Ethernet header and an IP header without options; returns how many bytes (34 or 54).
/// Precondition: kEthernetHeader + kIpv6Header bytes at `out`; payload fits into 16 bits with the header.
std::size_t write_ip_headers(std::uint8_t* out, const MacAddress& destination, const MacAddress& source,
                             const IpPacket& packet, std::size_t payload_size);
void write_ethernet(std::uint8_t* out, const MacAddress& destination, const MacAddress& source,
                    std::uint16_t type);

}  // namespace drupe::net
