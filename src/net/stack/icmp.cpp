#include "net/stack/icmp.h"

#include <optional>

#include "net/stack/checksum.h"

namespace drupe::net {
namespace {

// ICMP types and codes (RFC 792, RFC 1812 5.2.7.1, RFC 4443).
constexpr std::uint8_t kEchoReply = 0, kUnreachable = 3, kEchoRequest = 8;
constexpr std::uint8_t kUnreachable6 = 1, kParameterProblem6 = 4, kEchoRequest6 = 128, kEchoReply6 = 129;
constexpr std::size_t kIcmpHeader = 8;
// What is quoted of a packet besides its IP header. Kernels need eight bytes.
constexpr std::size_t kMaxQuote = 128;

std::uint8_t code_of(Unreachable why, bool v6) {
  switch (why) {
    case Unreachable::kNetwork:
      return 0;
    case Unreachable::kHost:
      return v6 ? 3 : 1;
    case Unreachable::kProhibited:
      return v6 ? 1 : 13;
    case Unreachable::kPort:
      return v6 ? 4 : 3;
  }
  return 0;
}

// `argument` is the second word of the header.
void send_error(Output& output, const IpPacket& about, std::uint8_t type, std::uint8_t code,
                std::uint32_t argument) {
  const bool v6 = about.source.v6;
  std::array<std::uint8_t, kIcmpHeader + kEthernetHeader + kIpv6Header + kMaxQuote> message{};
  message[0] = type;
  message[1] = code;
  store32(message.data() + 4, argument);
  const std::size_t quoted = std::min(about.payload.size(), kMaxQuote);
  // An IP header as the guest sent it, made in place; the Ethernet header before it is overwritten.
  std::array<std::uint8_t, kEthernetHeader + kIpv6Header> headers{};
  const std::size_t headers_size = write_ip_headers(headers.data(), {}, {}, about, about.payload.size());
  const std::size_t ip = headers_size - kEthernetHeader;
  std::copy_n(headers.data() + kEthernetHeader, ip, message.data() + kIcmpHeader);
  std::copy_n(about.payload.data(), quoted, message.data() + kIcmpHeader + ip);
  const auto used = std::span(message).first(kIcmpHeader + ip + quoted);
  const IpPacket packet{about.destination, about.source, v6 ? kProtocolIcmpv6 : kProtocolIcmp, 0, {}};
  if (v6)
    set_icmpv6_checksum(packet.source, packet.destination, used);
  else
    store16(message.data() + 2, InternetChecksum().add(used).finish());
  output.send_ip(packet, used, {});
}

void echo(Output& output, const IpPacket& request, std::uint8_t reply_type) {
  const IpPacket packet{request.destination, request.source, request.protocol, 0, {}};
  std::array<std::uint8_t, kIcmpHeader> header{};
  std::copy_n(request.payload.data() + 4, 4, header.data() + 4);  // identifier, sequence number
  header[0] = reply_type;
  const ByteView rest = request.payload.subspan(kIcmpHeader);
  InternetChecksum sum;
  if (request.source.v6)
    sum.add_pseudo_header(packet.source, packet.destination, kProtocolIcmpv6, request.payload.size());
  store16(header.data() + 2, sum.add(header).add(rest).finish());
  output.send_ip(packet, header, rest);
}

// The flow of the datagram that a "port unreachable" quotes (RFC 792).
std::optional<FlowKey> refused_flow(const IpPacket& packet) {
  const ByteView quoted = packet.payload.subspan(kIcmpHeader);
  if (quoted.size() < kIpv4Header || quoted[0] >> 4 != 4 || quoted[9] != kProtocolUdp) return std::nullopt;
  const std::size_t header = (quoted[0] & 0xfU) * std::size_t{4};
  if (header < kIpv4Header || quoted.size() < header + 4) return std::nullopt;
  const PacketAddress source = PacketAddress::v4_at(quoted.data() + 12);
  const PacketAddress destination = PacketAddress::v4_at(quoted.data() + 16);
  if (source != packet.destination || destination != packet.source) return std::nullopt;
  return FlowKey{destination, source, load16(quoted.data() + header + 2), load16(quoted.data() + header)};
}

}  // namespace

void set_icmpv6_checksum(const PacketAddress& source, const PacketAddress& destination,
                         std::span<std::uint8_t> message) {
  InternetChecksum sum;
  sum.add_pseudo_header(source, destination, kProtocolIcmpv6, message.size());
  store16(message.data() + 2, sum.add(message).finish());
}

bool icmpv6_checksum_right(const IpPacket& packet) {
  InternetChecksum sum;
  sum.add_pseudo_header(packet.source, packet.destination, kProtocolIcmpv6, packet.payload.size());
  return sum.add(packet.payload).finish() == 0;
}

void send_unreachable(Output& output, const IpPacket& packet, Unreachable why) {
  const bool v6 = packet.source.v6;
  send_error(output, packet, v6 ? kUnreachable6 : kUnreachable, code_of(why, v6), 0);
}

void send_unknown_protocol(Output& output, const IpPacket& packet) {
  if (packet.source.v6)
    send_error(output, packet, kParameterProblem6, 1, 6);  // the pointer: the next-header field of IPv6
  else
    send_error(output, packet, kUnreachable, 2, 0);
}

void send_echo(Output& output, const PacketAddress& remote, bool reply, ByteView body) {
  constexpr std::size_t kHead = 4;  // type, code, checksum
  std::array<std::uint8_t, kHead> header{reply ? kEchoReply : kEchoRequest};
  store16(header.data() + 2, InternetChecksum().add(header).add(body).finish());
  output.send_ip({remote, output.config().guest_v4, kProtocolIcmp, 0, {}}, header, body);
}

void refuse_echo(Output& output, const PacketAddress& remote, ByteView body) {
  std::array<std::uint8_t, kIcmpHeader> head{kEchoRequest};
  std::copy_n(body.data(), std::min(body.size(), kIcmpHeader - 4), head.data() + 4);
  send_unreachable(output, {output.config().guest_v4, remote, kProtocolIcmp, 0, head}, Unreachable::kHost);
}

void input_icmp(Output& output, Counters& counters, const IpPacket& packet, const PacketAddress& gateway,
                IcmpHandler* others) {
  if (packet.payload.size() < kIcmpHeader) return counters.drop(DropReason::kRunt);
  if (InternetChecksum().add(packet.payload).finish() != 0) return counters.drop(DropReason::kBadChecksum);
  const std::uint8_t type = packet.payload[0];
  if (type == kUnreachable && packet.payload[1] == code_of(Unreachable::kPort, false)) {
    const auto key = refused_flow(packet);
    if (!key || others == nullptr) return counters.drop(DropReason::kIgnored);
    return others->on_port_refused(*key);
  }
  if ((type != kEchoRequest && type != kEchoReply) || packet.payload[1] != 0)
    return counters.drop(DropReason::kIgnored);
  if (type == kEchoRequest && packet.destination == gateway) return echo(output, packet, kEchoReply);
  if (others != nullptr && others->on_echo(packet.destination, type == kEchoReply, packet.payload.subspan(4)))
    return;
  if (type == kEchoReply) return counters.drop(DropReason::kIgnored);
  send_unreachable(output, packet, Unreachable::kProhibited);
}

void input_icmpv6(Output& output, Counters& counters, const IpPacket& packet, const PacketAddress& gateway) {
  if (packet.payload.size() < kIcmpHeader) return counters.drop(DropReason::kRunt);
  if (packet.payload[0] != kEchoRequest6 || packet.payload[1] != 0)
    return counters.drop(DropReason::kIgnored);
  const bool to_gateway =
      packet.destination == gateway || packet.destination == link_local_of(output.config().gateway_mac);
  if (to_gateway)
    echo(output, packet, kEchoReply6);
  else
    send_unreachable(output, packet, Unreachable::kProhibited);
}

}  // namespace drupe::net
