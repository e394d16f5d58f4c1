#include "net/stack/ip.h"

#include "net/stack/checksum.h"

namespace drupe::net {
namespace {

constexpr std::uint8_t kHopByHop = 0;
constexpr std::uint8_t kRouting = 43;
constexpr std::uint8_t kFragmentHeader = 44;
constexpr std::uint8_t kDestinationOptions = 60;
constexpr int kMaxExtensionHeaders = 8;
constexpr std::uint8_t kHopLimit = 64;

// Leaves `packet.protocol` and `packet.payload` at the first header that is no extension header.
Parsed<void> skip_extension_headers(IpPacket& packet) {
  for (int i = 0; i <= kMaxExtensionHeaders; ++i) {
    if (packet.protocol == kFragmentHeader) return std::unexpected(DropReason::kFragment);
    if (packet.protocol == kRouting) return std::unexpected(DropReason::kBadHeader);
    if (packet.protocol != kHopByHop && packet.protocol != kDestinationOptions) return {};
    if (packet.payload.size() < 8) return std::unexpected(DropReason::kRunt);
    const std::size_t length = (std::size_t{packet.payload[1]} + 1) * 8;
    if (packet.payload.size() < length) return std::unexpected(DropReason::kBadHeader);
    packet.protocol = packet.payload[0];
    packet.payload = packet.payload.subspan(length);
  }
  return std::unexpected(DropReason::kBadHeader);
}

}  // namespace

Parsed<EthernetFrame> parse_ethernet(ByteView frame) {
  if (frame.size() < kEthernetHeader) return std::unexpected(DropReason::kRunt);
  EthernetFrame parsed;
  std::copy_n(frame.data(), 6, parsed.destination.bytes.begin());
  std::copy_n(frame.data() + 6, 6, parsed.source.bytes.begin());
  parsed.type = load16(frame.data() + 12);
  parsed.payload = frame.subspan(kEthernetHeader);
  return parsed;
}

Parsed<IpPacket> parse_ipv4(ByteView packet) {
  if (packet.size() < kIpv4Header) return std::unexpected(DropReason::kRunt);
  const std::uint8_t* at = packet.data();
  const std::size_t header = std::size_t{at[0] & 0x0fU} * 4;
  const std::size_t total = load16(at + 2);
  if (at[0] >> 4 != 4 || header < kIpv4Header || total < header)
    return std::unexpected(DropReason::kBadHeader);
  if (packet.size() < total) return std::unexpected(DropReason::kRunt);
  if (InternetChecksum().add(packet.first(header)).finish() != 0)
    return std::unexpected(DropReason::kBadChecksum);
  // More-fragments flag or an offset (RFC 791 3.1); the don't-fragment flag is of no interest.
  if ((load16(at + 6) & 0x3fffU) != 0) return std::unexpected(DropReason::kFragment);
  IpPacket parsed;
  parsed.hop_limit = at[8];
  parsed.protocol = at[9];
  parsed.source = PacketAddress::v4_at(at + 12);
  parsed.destination = PacketAddress::v4_at(at + 16);
  parsed.payload = packet.subspan(header, total - header);
  return parsed;
}

Parsed<IpPacket> parse_ipv6(ByteView packet) {
  if (packet.size() < kIpv6Header) return std::unexpected(DropReason::kRunt);
  const std::uint8_t* at = packet.data();
  const std::size_t length = load16(at + 4);
  if (at[0] >> 4 != 6) return std::unexpected(DropReason::kBadHeader);
  if (packet.size() < kIpv6Header + length) return std::unexpected(DropReason::kRunt);
  IpPacket parsed;
  parsed.protocol = at[6];
  parsed.hop_limit = at[7];
  parsed.source = PacketAddress::v6_at(at + 8);
  parsed.destination = PacketAddress::v6_at(at + 24);
  parsed.payload = packet.subspan(kIpv6Header, length);
  if (const auto skipped = skip_extension_headers(parsed); !skipped) return std::unexpected(skipped.error());
  return parsed;
}

void write_ethernet(std::uint8_t* out, const MacAddress& destination, const MacAddress& source,
                    std::uint16_t type) {
  std::copy_n(destination.bytes.begin(), 6, out);
  std::copy_n(source.bytes.begin(), 6, out + 6);
  store16(out + 12, type);
}

std::size_t write_ip_headers(std::uint8_t* out, const MacAddress& destination, const MacAddress& source,
                             const IpPacket& packet, std::size_t payload_size) {
  const bool v6 = packet.source.v6;
  write_ethernet(out, destination, source, v6 ? kTypeIpv6 : kTypeIpv4);
  std::uint8_t* at = out + kEthernetHeader;
  const std::uint8_t hop_limit = packet.hop_limit != 0 ? packet.hop_limit : kHopLimit;
  if (v6) {
    store32(at, 6U << 28);
    store16(at + 4, static_cast<std::uint16_t>(payload_size));
    at[6] = packet.protocol;
    at[7] = hop_limit;
    std::copy_n(packet.source.bytes.begin(), 16, at + 8);
    std::copy_n(packet.destination.bytes.begin(), 16, at + 24);
    return kEthernetHeader + kIpv6Header;
  }
  store32(at, 0x45000000U | static_cast<std::uint32_t>(kIpv4Header + payload_size));
  // Identification 0 with don't-fragment: an atomic datagram (RFC 6864 4).
  store32(at + 4, 0x00004000U);
  at[8] = hop_limit;
  at[9] = packet.protocol;
  store16(at + 10, 0);
  std::copy_n(packet.source.bytes.begin(), 4, at + 12);
  std::copy_n(packet.destination.bytes.begin(), 4, at + 16);
  store16(at + 10, InternetChecksum().add(ByteView(at, kIpv4Header)).finish());
  return kEthernetHeader + kIpv4Header;
}

}  // namespace drupe::net
