#include "net/stack/stack.h"

#include "net/stack/icmp.h"
#include "net/stack/neighbours.h"

namespace drupe::net {

Result<StackConfig> validated(StackConfig config) {
  const auto wrong = [](const char* what) { return fail(ErrorCode::kInvalidArgument, what); };
  if (config.mtu < kMinMtu || config.mtu > kMaxMtu) return wrong("The MTU must be 1280 to 65520");
  if (config.guest_mac.group() || config.gateway_mac.group() || config.guest_mac == config.gateway_mac)
    return wrong("Guest and gateway need two MAC addresses that are no groups");
  if (config.guest_v4.v6 || config.gateway_v4.v6)
    return wrong("An IPv6 address stands in place of an IPv4 address");
  if (config.guest_v6.has_value() != config.gateway_v6.has_value())
    return wrong("Guest and gateway need an IPv6 address both, or none");
  if (config.guest_v6 && (!config.guest_v6->v6 || !config.gateway_v6->v6))
    return wrong("An IPv4 address stands in place of an IPv6 address");
  if (config.tcp.max_connections < 1 || config.tcp.max_connections > 65536 || config.tcp.max_half_open < 1)
    return wrong("The bound on connections must be 1 to 65536");
  if (config.udp.max_flows < 1 || config.udp.max_flows > 65536)
    return wrong("The bound on UDP flows must be 1 to 65536");
  if (config.tcp.buffer_size < 16 * kKiB || config.tcp.buffer_size > 512 * kKiB)
    return wrong("The buffer of a connection must be 16 KiB to 512 KiB");
  if (config.tcp.smallest_buffer < 16 * kKiB || config.tcp.smallest_buffer > config.tcp.buffer_size)
    return wrong("The smallest buffer of a connection must be 16 KiB to the largest");
  if (config.queue_bytes < 2 * (config.mtu + kEthernetHeader))
    return wrong("The queue must have room for two frames");
  return config;
}

Stack::Stack(StackConfig config, FrameSink& sink, TimeSource& time, TcpHandler& tcp, UdpHandler& udp)
    : config_(config),
      output_(config_, sink, counters_),
      guest_link_local_(link_local_of(config_.guest_mac)),
      tcp_(config_, time, output_, counters_, tcp),
      udp_(config_, time, output_, counters_, udp) {}

void Stack::input(ByteView frame) {
  ++counters_.frames_in;
  counters_.bytes_in += frame.size();
  if (frame.size() > config_.mtu + kEthernetHeader) return counters_.drop(DropReason::kGiant);
  const auto ethernet = parse_ethernet(frame);
  if (!ethernet) return counters_.drop(ethernet.error());
  if (ethernet->source != config_.guest_mac) return counters_.drop(DropReason::kForgedMac);
  if (ethernet->destination != config_.gateway_mac && !ethernet->destination.group())
    return counters_.drop(DropReason::kNotForUs);
  switch (ethernet->type) {
    case kTypeArp:
      return input_arp(output_, counters_, ethernet->payload);
    case kTypeIpv4:
      return input_v4(ethernet->payload);
    case kTypeIpv6:
      return input_v6(ethernet->payload);
    default:
      return counters_.drop(DropReason::kUnknownType);
  }
}

// The packet goes to one host that is not the guest. 0.0.0.0/8 and 240.0.0.0/4 are no hosts (RFC
// 1122 3.2.1.3, RFC 1112 4); whether others may be reached is not decided here.
bool Stack::good_destination(const PacketAddress& destination) const {
  if (destination.unspecified() || destination.multicast()) return false;
  if (destination.v6) return destination != config_.guest_v6 && destination != guest_link_local_;
  return destination != config_.guest_v4 && destination.bytes[0] != 0 && destination.bytes[0] < 240;
}

void Stack::input_v4(ByteView bytes) {
  const auto packet = parse_ipv4(bytes);
  if (!packet) return counters_.drop(packet.error());
  if (packet->source != config_.guest_v4 || packet->source.unspecified())
    return counters_.drop(DropReason::kForgedAddress);
  if (!good_destination(packet->destination)) return counters_.drop(DropReason::kBadDestination);
  if (packet->protocol == kProtocolIcmp)
    return input_icmp(output_, counters_, *packet, config_.gateway_v4, icmp_);
  dispatch(*packet);
}

void Stack::input_v6(ByteView bytes) {
  const auto packet = parse_ipv6(bytes);
  if (!packet) return counters_.drop(packet.error());
  const bool global = config_.guest_v6 && packet->source == *config_.guest_v6;
  if (packet->protocol == kProtocolIcmpv6) {
    // Before it has an address, and on its own link, the guest speaks with others.
    if (!global && packet->source != guest_link_local_ && !packet->source.unspecified())
      return counters_.drop(DropReason::kForgedAddress);
    return input_icmpv6_message(*packet);
  }
  if (!global) return counters_.drop(DropReason::kForgedAddress);
  if (!good_destination(packet->destination)) return counters_.drop(DropReason::kBadDestination);
  dispatch(*packet);
}

void Stack::input_icmpv6_message(const IpPacket& packet) {
  if (!icmpv6_checksum_right(packet)) return counters_.drop(DropReason::kBadChecksum);
  if (is_neighbour_discovery(packet.payload)) return input_neighbour_discovery(output_, counters_, packet);
  // Group membership reports go to groups.
  if (packet.destination.multicast()) return counters_.drop(DropReason::kIgnored);
  if (packet.source.unspecified()) return counters_.drop(DropReason::kForgedAddress);
  if (!good_destination(packet.destination)) return counters_.drop(DropReason::kBadDestination);
  input_icmpv6(output_, counters_, packet, config_.gateway_v6.value_or(link_local_of(config_.gateway_mac)));
}

void Stack::send_echo(const PacketAddress& remote, bool reply, ByteView body) {
  if (body.size() < 4 || body.size() + 4 > config_.mtu - kIpv4Header) return;
  drupe::net::send_echo(output_, remote, reply, body);
  if (on_work_) on_work_();
}

void Stack::refuse_echo(const PacketAddress& remote, ByteView body) {
  drupe::net::refuse_echo(output_, remote, body);
  if (on_work_) on_work_();
}

void Stack::dispatch(const IpPacket& packet) {
  if (packet.protocol == kProtocolTcp) {
    const auto segment = parse_tcp(packet);
    if (!segment) return counters_.drop(segment.error());
    return tcp_.input(packet, *segment);
  }
  if (packet.protocol == kProtocolUdp) {
    const auto datagram = parse_udp(packet);
    if (!datagram) return counters_.drop(datagram.error());
    return udp_.input(packet, *datagram);
  }
  counters_.drop(DropReason::kUnknownType);
  send_unknown_protocol(output_, packet);
}

}  // namespace drupe::net
