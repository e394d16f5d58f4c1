// ICMP between members: echo, and datagrams that nobody takes. Without a state of its own: what one guest
// says to the other is that member's word.
#include "net/program/flow_number.h"
#include "net/program/peers.h"

namespace drupe::net {

bool Peers::on_echo(const PacketAddress& remote, bool reply, ByteView body) {
  Member* member = member_at(remote);
  if (member == nullptr || parts_.quota.spent()) return false;
  count(body.size());
  PeerMessage message;
  message.kind = reply ? PeerMessageKind::kEchoReply : PeerMessageKind::kEcho;
  message.payload = as_text(body);
  Channel* channel = usable(*member);
  if (channel != nullptr) channel->link->send_datagram(message);
  // Who asked has gone.
  if (reply) return true;
  note(*member, "icmp", 0, true, {});
  if (channel != nullptr) return true;
  if (is_out(*member)) {
    driver_->stack().refuse_echo(remote, body);
    return true;
  }
  if (member->datagrams.size() < kMaxWaiting) member->datagrams.emplace_back(FlowId{}, std::move(message));
  want(*member);
  return true;
}

void Peers::on_echo_of(const Member& member, const PeerMessage& message) {
  if (parts_.quota.spent()) return;
  const bool reply = message.kind == PeerMessageKind::kEchoReply;
  count(message.payload.size());
  if (!reply) note(member, "icmp, incoming", 0, true, {});
  driver_->stack().send_echo(member.address, reply, as_bytes(message.payload));
}

void Peers::on_port_refused(const FlowKey& key) {
  const Member* member = member_at(key.remote);
  const auto flow = driver_->stack().udp().find(key);
  if (member == nullptr || !flow || !udp_.contains(number_of(*flow))) return;
  PeerMessage message;
  message.kind = PeerMessageKind::kUnheard;
  message.source_port = key.guest_port;
  message.destination_port = key.remote_port;
  if (Channel* channel = usable(*member)) channel->link->send_datagram(message);
  driver_->udp().close(*flow);
}

void Peers::on_unheard(const Member& member, const PeerMessage& message) {
  FlowKey key;
  key.guest = driver_->stack().config().guest_v4;
  key.remote = member.address;
  key.guest_port = message.destination_port;
  key.remote_port = message.source_port;
  const auto flow = driver_->stack().udp().find(key);
  if (flow && udp_.contains(number_of(*flow))) driver_->udp().refuse(*flow, Unreachable::kPort);
}

}  // namespace drupe::net
