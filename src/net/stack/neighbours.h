// Who has which MAC address: ARP (RFC 826) and neighbour discovery (RFC 4861).
#pragma once

#include "net/stack/output.h"

namespace drupe::net {

/// An ARP packet of the guest. The gateway is answered for; what claims another MAC or IP than the guest's is
/// dropped and counted as forged. Nothing is learnt: the guest's addresses are fixed by configuration.
void input_arp(Output& output, Counters& counters, ByteView body);

/// An ICMPv6 message of neighbour discovery (types 133 to 137) with a right checksum. Router solicitations
/// get no answer: the guest is configured by its agent.
void input_neighbour_discovery(Output& output, Counters& counters, const IpPacket& packet);
[[nodiscard]] bool is_neighbour_discovery(ByteView icmpv6);

}  // namespace drupe::net
