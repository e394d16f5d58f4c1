#include "net/program/peers.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "net/program/addresses.h"
#include "net/program/flow_number.h"

namespace drupe::net {
namespace {

constexpr int kAcceptsPerTurn = 16;
// After accept() failed for want of descriptors or memory.
constexpr std::chrono::milliseconds kAcceptAgain{100};

ConnectVerdict refusal() {
  return {};
}

ConnectVerdict unreachable() {
  ConnectVerdict verdict;
  verdict.action = ConnectVerdict::Action::kUnreachable;
  verdict.why = Unreachable::kHost;
  return verdict;
}

}  // namespace

Peers::~Peers() {
  if (listener_.valid()) parts_.loop.unwatch(listener_.get());
  parts_.loop.cancel(accept_timer_);
  for (const auto& [number, flow] : flows_) parts_.loop.cancel(flow.timer);
}

Peers::Member* Peers::member_at(const PacketAddress& address) const {
  // An IPv4 address in IPv6's spelling has flows of its own, which no answer would find.
  if (address.v6) return nullptr;
  const auto found = members_.find(ip_address(address));
  return found == members_.end() ? nullptr : found->second.get();
}

Peers::Member* Peers::member_of(const PeerId& peer) const {
  for (const auto& [address, member] : members_)
    if (member->entry.id == peer) return member.get();
  return nullptr;
}

bool Peers::owns(const PacketAddress& address) const {
  return member_at(address) != nullptr;
}

Peers::Channel* Peers::usable(const Member& member) {
  for (Channel* channel : member.channels)
    if (!channel->link->closed()) return channel;
  return nullptr;
}

Peers::Flow* Peers::find(FlowId flow) {
  const auto found = flows_.find(number_of(flow));
  return found == flows_.end() ? nullptr : &found->second;
}

void Peers::note(const Member& member, const char* detail, std::uint16_t port, bool allowed,
                 const std::string& why) {
  ++(allowed ? admitted_ : refused_);
  LogEntry entry;
  entry.kind = LogKind::kConnection;
  entry.allowed = allowed;
  entry.name = member.entry.name;
  entry.detail = detail;
  entry.address = member.entry.address;
  entry.port = port;
  entry.rule = "network " + member.entry.network_name + why;
  parts_.log.add(std::move(entry), Clock::now());
}

// --- members ---------------------------------------------------------------------------------------------

void Peers::set_members(const std::vector<PeerEntry>& entries) {
  std::unordered_map<IpAddress, const PeerEntry*, IpAddressHash> wanted;
  for (const PeerEntry& entry : entries) wanted[entry.address] = &entry;
  std::vector<Member*> gone;
  for (const auto& [address, member] : members_) {
    const auto found = wanted.find(address);
    if (found == wanted.end() || found->second->id != member->entry.id)
      gone.push_back(member.get());
    else
      member->entry = *found->second;  // its name, or the network's
  }
  for (Member* member : gone) {
    drop_member(*member);
    const IpAddress address = member->entry.address;
    members_.erase(address);
  }
  for (const PeerEntry& entry : entries) {
    auto& place = members_[entry.address];
    if (place) continue;
    place = std::make_unique<Member>();
    place->entry = entry;
    place->address = packet_address(entry.address);
  }
}

void Peers::drop_member(Member& member) {
  while (!member.channels.empty()) drop_channel(*member.channels.back(), true);
  std::vector<FlowId> ended;
  for (const auto& [number, flow] : flows_)
    if (flow.member == &member) ended.push_back(flow_of(number));
  for (const FlowId flow : ended) end(flow);
  ended.clear();
  for (const auto& [number, flow] : udp_)
    if (flow.member == &member) ended.push_back(flow_of(number));
  for (const FlowId flow : ended) driver_->udp().close(flow);
}

// --- channels --------------------------------------------------------------------------------------------

Status Peers::set_listener(UniqueFd listener) {
  if (listener_.valid()) parts_.loop.unwatch(listener_.get());
  listener_ = std::move(listener);
  return parts_.loop.watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { on_listener(); });
}

void Peers::on_listener() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        (void)parts_.loop.modify(listener_.get(), 0);
        parts_.loop.cancel(accept_timer_);
        accept_timer_ = parts_.loop.after(kAcceptAgain, [this] {
          accept_timer_ = 0;
          (void)parts_.loop.modify(listener_.get(), EPOLLIN);
        });
      }
      return;
    }
    // Who has made the connection writes at once: those that say nothing are few, or somebody's mistake.
    if (unknown_ < kMaxUnknown) static_cast<void>(add_channel(std::move(socket), nullptr));
  }
}

bool Peers::add_channel(UniqueFd socket, Member* member) {
  auto made = std::make_unique<Channel>();
  Channel* channel = made.get();
  channel->link = std::make_unique<PeerChannel>(
      parts_.loop, std::move(socket),
      [this, channel](ByteView bytes, UniqueFd passed) {
        return on_packet(*channel, bytes, std::move(passed));
      },
      [this, channel] { drop_channel(*channel, false); });
  if (!channel->link->start()) return false;
  channels_[channel] = std::move(made);
  if (member == nullptr)
    ++unknown_;
  else
    join(*channel, *member);
  return true;
}

void Peers::join(Channel& channel, Member& member) {
  channel.member = &member;
  member.channels.push_back(&channel);
  // Of the other side's making, too: it is as good as one that was asked for.
  for (const FlowId id : std::exchange(member.waiting, {}))
    if (Flow* flow = find(id)) open(id, *flow, channel);
  for (const auto& [flow, datagram] : std::exchange(member.datagrams, {}))
    channel.link->send_datagram(datagram);
}

void Peers::on_channel(const PeerId& peer, UniqueFd socket) {
  Member* member = member_of(peer);
  if (member == nullptr) return;  // it has left meanwhile
  member->wanted = false;
  if (socket.valid() && add_channel(std::move(socket), member)) return;
  if (usable(*member) != nullptr) return;
  member->ask_from = Clock::now() + kAskAgain;
  for (const FlowId flow : std::exchange(member->waiting, {})) give_up(flow);
  for (const auto& [flow, datagram] : std::exchange(member->datagrams, {}))
    if (datagram.kind == PeerMessageKind::kEcho)
      driver_->stack().refuse_echo(member->address, as_bytes(datagram.payload));
    else
      driver_->udp().refuse(flow, Unreachable::kPort);  // what a socket is told of
}

void Peers::drop_channel(Channel& channel, bool all) {
  if (channel.member == nullptr)
    --unknown_;
  else
    std::erase(channel.member->channels, &channel);
  std::vector<FlowId> flows;
  for (const auto& [number, flow] : channel.ours) flows.push_back(flow);
  for (const auto& [number, flow] : channel.theirs) flows.push_back(flow);
  for (const FlowId id : flows) {
    Flow* flow = find(id);
    if (flow == nullptr) continue;
    const bool stands = flow->ours ? !flow->socket.valid() : flow->accepted;
    // What stands is left with what its stream still holds, and ends with it.
    if (all || !stands)
      end(id);
    else
      flow->channel = nullptr;
  }
  // Destroyed later: it may be this channel's own call.
  auto kept = std::move(channels_.at(&channel));
  channels_.erase(&channel);
  kept->link->abandon();
  parts_.loop.defer([gone = std::shared_ptr<Channel>(std::move(kept))] {});
}

bool Peers::on_packet(Channel& channel, ByteView bytes, UniqueFd passed) {
  if (channel.member != nullptr) {
    auto message = PeerMessage::decode(bytes);
    return message && on_message(channel, *std::move(message), std::move(passed));
  }
  const auto peer = PeerId::decode(bytes);
  Member* member = peer ? member_of(*peer) : nullptr;
  if (member == nullptr || member->channels.size() >= kMaxChannels) return false;
  --unknown_;
  join(channel, *member);
  return true;
}

bool Peers::on_message(Channel& channel, PeerMessage message, UniqueFd passed) {
  switch (message.kind) {
    case PeerMessageKind::kOpen:
      if (!is_peer_stream(passed.get()) || channel.theirs.contains(message.number)) return false;
      on_open(channel, message, std::move(passed));
      return true;
    case PeerMessageKind::kOpened:
    case PeerMessageKind::kRefused:
      on_answer(channel, message);
      return true;
    case PeerMessageKind::kCancel:
      if (const auto found = channel.theirs.find(message.number); found != channel.theirs.end())
        end(found->second);
      return true;
    case PeerMessageKind::kEnd: {
      const auto& flows = message.own ? channel.theirs : channel.ours;
      const auto found = flows.find(message.number);
      if (Flow* flow = found == flows.end() ? nullptr : find(found->second)) flow->well = true;
      return true;
    }
    case PeerMessageKind::kDatagram:
      on_datagram(*channel.member, message);
      return true;
    case PeerMessageKind::kUnheard:
      on_unheard(*channel.member, message);
      return true;
    case PeerMessageKind::kEcho:
    case PeerMessageKind::kEchoReply:
      on_echo_of(*channel.member, message);
      return true;
  }
  return false;
}

bool Peers::is_out(const Member& member) {
  return Clock::now() < member.ask_from && usable(member) == nullptr;
}

void Peers::want(Member& member) {
  if (!std::exchange(member.wanted, true)) parts_.want(member.entry.id);
}

// --- connections of this guest ---------------------------------------------------------------------------

void Peers::connect(FlowId id, const FlowKey& key) {
  Member& member = *member_at(key.remote);
  const bool spent = parts_.quota.spent();
  if (spent || member.open >= kMaxOpen) {
    note(member, "tcp", key.remote_port, false,
         spent ? ", quota: " + std::to_string(parts_.quota.limit()) + " bytes are used up"
               : ", too many connections");
    return decide(id, refusal());
  }
  note(member, "tcp", key.remote_port, true, {});
  if (is_out(member)) return decide(id, refusal());
  Flow& flow = flows_[number_of(id)];
  flow.member = &member;
  flow.ours = true;
  ++member.open;
  flow.timer = parts_.loop.after(kPatience, [this, id] {
    if (Flow* late = find(id)) late->timer = 0;
    give_up(id);
  });
  if (Channel* channel = usable(member)) return open(id, flow, *channel);
  member.waiting.push_back(id);
  want(member);
}

void Peers::open(FlowId id, Flow& flow, Channel& channel) {
  std::array<int, 2> ends{};
  const FlowKey* key = driver_->stack().tcp().key(id);
  if (key == nullptr ||
      ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
    return give_up(id);
  flow.socket = UniqueFd(ends[0]);
  UniqueFd other(ends[1]);
  while (channel.ours.contains(channel.next_number)) ++channel.next_number;
  flow.number = channel.next_number++;
  flow.channel = &channel;
  channel.ours[flow.number] = id;
  PeerMessage message;
  message.kind = PeerMessageKind::kOpen;
  message.number = flow.number;
  message.source_port = key->guest_port;
  message.destination_port = key->remote_port;
  channel.link->send(message, std::move(other));
}

void Peers::on_answer(Channel& channel, const PeerMessage& message) {
  const auto found = channel.ours.find(message.number);
  if (found == channel.ours.end()) return;
  const FlowId id = found->second;
  Flow* flow = find(id);
  if (flow == nullptr || !flow->socket.valid()) return;
  if (message.kind == PeerMessageKind::kRefused) {
    forget(id);
    return decide(id, message.silent ? unreachable() : refusal());
  }
  parts_.loop.cancel(std::exchange(flow->timer, 0));
  ConnectVerdict verdict;
  verdict.action = ConnectVerdict::Action::kConnect;
  verdict.socket = std::move(flow->socket);
  verdict.peer = true;
  decide(id, std::move(verdict));
}

void Peers::decide(FlowId id, ConnectVerdict verdict) {
  driver_->tcp().decide(id, std::move(verdict));
}

// A connection that the guest waits for leads nowhere.
void Peers::give_up(FlowId id) {
  Flow* flow = find(id);
  if (flow == nullptr) return;
  if (flow->member != nullptr) std::erase(flow->member->waiting, id);
  const bool late = flow->timer == 0;
  cancel(forget(id));
  decide(id, late ? unreachable() : refusal());
}

// --- connections of others -------------------------------------------------------------------------------

void Peers::on_open(Channel& channel, const PeerMessage& message, UniqueFd stream) {
  Member& member = *channel.member;
  const auto refuse = [&](const char* why) {
    note(member, "tcp, incoming", message.destination_port, false, why);
    PeerMessage answer;
    answer.kind = PeerMessageKind::kRefused;
    answer.number = message.number;
    channel.link->send(answer);
  };
  if (parts_.quota.spent()) return refuse(", the quota is used up");
  if (member.open >= kMaxOpen || incoming_ >= kMaxIncoming) return refuse(", too many connections");
  FlowKey key;
  key.guest = driver_->stack().config().guest_v4;
  key.remote = member.address;
  key.guest_port = message.destination_port;
  key.remote_port = message.source_port;
  UniqueFd again(::fcntl(stream.get(), F_DUPFD_CLOEXEC, 0));
  auto opened = driver_->tcp().connect_guest(key, std::move(stream), /*peer=*/true);
  if (!opened && again.valid() && opened.error().code == ErrorCode::kAlreadyExists) {
    // An earlier connection from that port has not quite ended here.
    key.remote_port = 0;
    opened = driver_->tcp().connect_guest(key, std::move(again), /*peer=*/true);
  }
  if (!opened) return refuse(", too many connections");
  note(member, "tcp, incoming", message.destination_port, true, {});
  Flow& flow = flows_[number_of(*opened)];
  flow.member = &member;
  flow.channel = &channel;
  flow.number = message.number;
  channel.theirs[message.number] = *opened;
  ++member.open;
  ++incoming_;
}

void Peers::on_guest_accepted(FlowId id) {
  Flow* flow = find(id);
  if (flow == nullptr || flow->ours) return;
  flow->accepted = true;
  PeerMessage message;
  message.kind = PeerMessageKind::kOpened;
  message.number = flow->number;
  flow->channel->link->send(message);
}

bool Peers::on_guest_refused(FlowId id, CloseReason reason, UniqueFd& socket) {
  if (find(id) == nullptr) return false;
  const Flow gone = forget(id);
  PeerMessage message;
  message.kind = PeerMessageKind::kRefused;
  message.number = gone.number;
  message.silent = reason == CloseReason::kTimedOut;
  socket.reset();
  if (gone.channel != nullptr) gone.channel->link->send(message);
  return true;
}

// --- ends ------------------------------------------------------------------------------------------------

// Takes a connection out of all tables.
Peers::Flow Peers::forget(FlowId id) {
  auto node = flows_.extract(number_of(id));
  if (node.empty()) return {};
  Flow flow = std::move(node.mapped());
  parts_.loop.cancel(flow.timer);
  if (flow.channel != nullptr) (flow.ours ? flow.channel->ours : flow.channel->theirs).erase(flow.number);
  --flow.member->open;
  if (!flow.ours) --incoming_;
  return flow;
}

// Tells the other side of a connection that was still being opened.
void Peers::cancel(const Flow& gone) {
  if (!gone.ours || !gone.socket.valid() || gone.channel == nullptr) return;
  PeerMessage message;
  message.kind = PeerMessageKind::kCancel;
  message.number = gone.number;
  gone.channel->link->send(message);
}

// The other side waits for it no more, or is gone.
void Peers::end(FlowId id) {
  Flow* flow = find(id);
  if (flow == nullptr) return;
  std::erase(flow->member->waiting, id);
  forget(id);
  decide(id, refusal());      // it is still the guest's wish,
  driver_->tcp().refuse(id);  // or stands
}

bool Peers::on_gone(FlowId id) {
  Flow* flow = find(id);
  if (flow == nullptr) return false;
  std::erase(flow->member->waiting, id);
  cancel(forget(id));
  return true;
}

void Peers::end_peer(FlowId id, int socket) {
  const Flow* flow = find(id);
  if (flow == nullptr || flow->channel == nullptr) {
    ::shutdown(socket, SHUT_WR);
    return;
  }
  PeerMessage message;
  message.kind = PeerMessageKind::kEnd;
  message.number = flow->number;
  message.own = flow->ours;
  flow->channel->link->send(message, {}, UniqueFd(::fcntl(socket, F_DUPFD_CLOEXEC, 0)));
}

bool Peers::peer_ended_well(FlowId id) {
  // What the other side has said of it was sent before its bytes ended.
  if (Flow* flow = find(id); flow != nullptr && flow->channel != nullptr) flow->channel->link->drain();
  const Flow* flow = find(id);
  return flow != nullptr && flow->well;
}

// --- datagrams -------------------------------------------------------------------------------------------

UdpVerdict Peers::on_udp_flow(FlowId id, const FlowKey& key) {
  UdpVerdict verdict;
  Member& member = *member_at(key.remote);
  if (parts_.quota.spent()) {
    note(member, "udp", key.remote_port, false, ", the quota is used up");
    return verdict;
  }
  note(member, "udp", key.remote_port, true, {});
  if (is_out(member)) return verdict;
  udp_[number_of(id)] = {&member, false, ++use_};
  verdict.action = UdpVerdict::Action::kLocal;
  return verdict;
}

bool Peers::on_udp(FlowId id, const FlowKey& key, ByteView payload) {
  const auto found = udp_.find(number_of(id));
  if (found == udp_.end()) return false;
  Member& member = *found->second.member;
  found->second.used = ++use_;
  PeerMessage message;
  message.kind = PeerMessageKind::kDatagram;
  message.source_port = key.guest_port;
  message.destination_port = key.remote_port;
  message.payload = as_text(payload);
  if (Channel* channel = usable(member)) {
    channel->link->send_datagram(message);
    return true;
  }
  if (member.datagrams.size() < kMaxWaiting) member.datagrams.emplace_back(id, std::move(message));
  want(member);
  return true;
}

bool Peers::on_udp_gone(FlowId id) {
  const auto node = udp_.extract(number_of(id));
  if (node.empty()) return false;
  const UdpFlow& flow = node.mapped();
  std::erase_if(flow.member->datagrams, [id](const auto& waiting) { return waiting.first == id; });
  if (flow.theirs) {
    --flow.member->udp;
    --udp_incoming_;
  }
  return true;
}

// A member that begins many ends its own; a new one among many members ends anybody's.
void Peers::make_room_for_flow(const Member& member) {
  const bool own = member.udp >= kMaxUdp;
  if (!own && udp_incoming_ < kMaxUdpIncoming) return;
  auto oldest = udp_.end();
  for (auto it = udp_.begin(); it != udp_.end(); ++it) {
    if (!it->second.theirs || (own && it->second.member != &member)) continue;
    if (oldest == udp_.end() || it->second.used < oldest->second.used) oldest = it;
  }
  if (oldest != udp_.end()) driver_->udp().close(flow_of(oldest->first));
}

void Peers::on_datagram(Member& member, const PeerMessage& message) {
  if (parts_.quota.spent()) return;
  FlowKey key;
  key.guest = driver_->stack().config().guest_v4;
  key.remote = member.address;
  key.guest_port = message.destination_port;
  key.remote_port = message.source_port;
  if (message.payload.size() > driver_->stack().udp().max_payload(key)) return;
  auto flow = driver_->stack().udp().find(key);
  if (!flow) {
    make_room_for_flow(member);
    const auto opened = driver_->udp().open_local(key);
    if (!opened) return;
    flow = *opened;
    udp_[number_of(*flow)] = {&member, true, 0};
    ++member.udp;
    ++udp_incoming_;
    note(member, "udp, incoming", message.destination_port, true, {});
  }
  if (const auto known = udp_.find(number_of(*flow)); known != udp_.end()) known->second.used = ++use_;
  driver_->udp().send_local(*flow, as_bytes(message.payload));
}

}  // namespace drupe::net
