// ICMP and ICMPv6: echo answered by the gateway, and unreachable messages.
#pragma once

#include "net/stack/output.h"
#include "net/stack/tcp_types.h"

namespace drupe::net {

/// Tells the guest that its packet leads nowhere. `packet.payload` is the beginning of what followed the IP
/// header (eight bytes and more are quoted up to a bound); the quoted IP header is built anew.
/// RFC 792, RFC 4443 3.1.
void send_unreachable(Output& output, const IpPacket& packet, Unreachable why);
/// Nothing here speaks `packet.protocol`: protocol unreachable (RFC 792), unrecognized next header (RFC 4443
/// 3.4).
void send_unknown_protocol(Output& output, const IpPacket& packet);

/// Others behind the gateway that speak ICMP over IPv4. Callbacks may call the stack.
class IcmpHandler {
 public:
  virtual ~IcmpHandler() = default;
  /// An echo request, or a reply; `body` begins with identifier and sequence number. False: nobody there.
  virtual bool on_echo(const PacketAddress& remote, bool reply, ByteView body) = 0;
  /// A datagram of this flow found no socket in the guest. Hostile: there may be no such flow.
  virtual void on_port_refused(const FlowKey& key) = 0;
};

/// An ICMP message of the guest. Answers echo requests to `gateway`; echo for others and port unreachable go
/// to `others`, if there are any. An echo request that nobody takes is answered "prohibited", so that ping
/// fails at once. Everything else is dropped and counted.
void input_icmp(Output& output, Counters& counters, const IpPacket& packet, const PacketAddress& gateway,
                IcmpHandler* others);
/// An echo request or reply of `remote` to the guest's IPv4 address; `body` as in IcmpHandler, at least four
/// bytes.
void send_echo(Output& output, const PacketAddress& remote, bool reply, ByteView body);
/// Tells the guest that its echo request to `remote` leads nowhere.
void refuse_echo(Output& output, const PacketAddress& remote, ByteView body);
/// The same for ICMPv6 messages other than neighbour discovery; the checksum is the caller's.
void input_icmpv6(Output& output, Counters& counters, const IpPacket& packet, const PacketAddress& gateway);
/// Whether the ICMPv6 checksum is right (RFC 4443 2.3).
[[nodiscard]] bool icmpv6_checksum_right(const IpPacket& packet);
/// Fills in the checksum of an ICMPv6 message, whose field is zero, at bytes 2 and 3 of `message`.
void set_icmpv6_checksum(const PacketAddress& source, const PacketAddress& destination,
                         std::span<std::uint8_t> message);

}  // namespace drupe::net
