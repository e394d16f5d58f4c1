#include "net/stack/neighbours.h"

#include "net/stack/icmp.h"

namespace drupe::net {
namespace {

constexpr std::size_t kArpSize = 28;
constexpr std::uint16_t kArpRequest = 1, kArpReply = 2;
constexpr std::uint8_t kRouterSolicitation = 133, kNeighbourSolicitation = 135, kNeighbourAdvertisement = 136,
                       kRedirect = 137;
constexpr std::size_t kNeighbourMessage = 24;  // header and target
constexpr std::uint8_t kSourceMac = 1, kTargetMac = 2;
constexpr std::uint8_t kHopLimit = 255;  // RFC 4861 3.1: nothing from beyond the link

bool answered_for(const StackConfig& config, const PacketAddress& target) {
  if (target.v6) {
    if (target == link_local_of(config.gateway_mac)) return true;
    if (target == link_local_of(config.guest_mac) || target == config.guest_v6) return false;
    return target == config.gateway_v6 || config.answer_for_neighbours;
  }
  if (target.unspecified() || target == config.guest_v4) return false;
  return target == config.gateway_v4 || config.answer_for_neighbours;
}

bool guests_own(const StackConfig& config, const PacketAddress& address) {
  return address == config.guest_v6 || address == link_local_of(config.guest_mac);
}

// Whether a link-layer address option names another MAC than the guest's. Options follow the first 24 bytes
// (RFC 4861 4.6); a length of zero or beyond the end is malformed.
Parsed<void> check_options(const StackConfig& config, ByteView options) {
  while (!options.empty()) {
    if (options.size() < 8) return std::unexpected(DropReason::kBadHeader);
    const std::size_t length = std::size_t{options[1]} * 8;
    if (length == 0 || length > options.size()) return std::unexpected(DropReason::kBadHeader);
    if ((options[0] == kSourceMac || options[0] == kTargetMac) &&
        !std::equal(config.guest_mac.bytes.begin(), config.guest_mac.bytes.end(), options.data() + 2))
      return std::unexpected(DropReason::kForgedMac);
    options = options.subspan(length);
  }
  return {};
}

void advertise(Output& output, const PacketAddress& target, const PacketAddress& asker) {
  const auto& config = output.config();
  std::array<std::uint8_t, kNeighbourMessage + 8> message{};
  message[0] = kNeighbourAdvertisement;
  // RFC 4861 4.4: router, solicited (not to the unspecified address), override.
  message[4] = asker.unspecified() ? 0xa0 : 0xe0;
  std::copy_n(target.bytes.begin(), 16, message.data() + 8);
  message[kNeighbourMessage] = kTargetMac;
  message[kNeighbourMessage + 1] = 1;
  std::copy_n(config.gateway_mac.bytes.begin(), 6, message.data() + kNeighbourMessage + 2);
  PacketAddress to = asker;
  if (asker.unspecified()) to.bytes = {0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};  // all nodes
  set_icmpv6_checksum(target, to, message);
  output.send_ip({target, to, kProtocolIcmpv6, kHopLimit, {}}, message, {});
}

}  // namespace

void input_arp(Output& output, Counters& counters, ByteView body) {
  const auto& config = output.config();
  if (body.size() < kArpSize) return counters.drop(DropReason::kRunt);
  const std::uint8_t* at = body.data();
  // Ethernet and IPv4, six and four bytes.
  if (load16(at) != 1 || load16(at + 2) != kTypeIpv4 || at[4] != 6 || at[5] != 4)
    return counters.drop(DropReason::kBadHeader);
  const PacketAddress sender = PacketAddress::v4_at(at + 14), target = PacketAddress::v4_at(at + 24);
  if (!std::equal(config.guest_mac.bytes.begin(), config.guest_mac.bytes.end(), at + 8))
    return counters.drop(DropReason::kForgedMac);
  // An unspecified sender asks whether an address is in use (RFC 5227 2.1.1).
  if (sender != config.guest_v4 && !sender.unspecified()) return counters.drop(DropReason::kForgedAddress);
  if (load16(at + 6) != kArpRequest || !answered_for(config, target))
    return counters.drop(DropReason::kIgnored);
  std::array<std::uint8_t, kArpSize> reply{};
  std::copy_n(at, 6, reply.data());
  store16(reply.data() + 6, kArpReply);
  std::copy_n(config.gateway_mac.bytes.begin(), 6, reply.data() + 8);
  std::copy_n(at + 24, 4, reply.data() + 14);
  std::copy_n(at + 8, 10, reply.data() + 18);
  output.send_arp(reply);
}

bool is_neighbour_discovery(ByteView icmpv6) {
  return !icmpv6.empty() && icmpv6[0] >= kRouterSolicitation && icmpv6[0] <= kRedirect;
}

void input_neighbour_discovery(Output& output, Counters& counters, const IpPacket& packet) {
  const auto& config = output.config();
  const ByteView message = packet.payload;
  if (message[0] == kRouterSolicitation) return counters.drop(DropReason::kIgnored);
  if (packet.hop_limit != kHopLimit) return counters.drop(DropReason::kBadHeader);
  if (message.size() < kNeighbourMessage) return counters.drop(DropReason::kRunt);
  if (message[1] != 0) return counters.drop(DropReason::kBadHeader);
  const bool solicits = message[0] == kNeighbourSolicitation;
  if (!solicits && message[0] != kNeighbourAdvertisement)  // the guest is no router and redirects nobody
    return counters.drop(DropReason::kForgedAddress);
  const PacketAddress target = PacketAddress::v6_at(message.data() + 8);
  if (const auto options = check_options(config, message.subspan(kNeighbourMessage)); !options)
    return counters.drop(options.error());
  if (!solicits && !guests_own(config, target)) return counters.drop(DropReason::kForgedAddress);
  if (!solicits || target.multicast() || !answered_for(config, target))
    return counters.drop(DropReason::kIgnored);
  advertise(output, target, packet.source);
}

}  // namespace drupe::net
