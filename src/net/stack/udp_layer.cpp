#include "net/stack/udp_layer.h"

#include "net/stack/icmp.h"

namespace drupe::net {

UdpLayer::UdpLayer(const StackConfig& config, TimeSource& time, Output& output, Counters& counters,
                   UdpHandler& handler)
    : config_(config),
      time_(time),
      output_(output),
      counters_(counters),
      handler_(handler),
      by_key_(0, FlowKeyHash{config.secret ^ 0x5bd1e995U}) {}

UdpLayer::Flow& UdpLayer::create(const FlowKey& key) {
  if (slots_.size() >= config_.udp.max_flows) {
    counters_.drop(DropReason::kTableFull);
    expire(*by_use_.front());
  }
  auto& flow = slots_.put(std::make_unique<Flow>(Flow{key, slots_.next_id(), time_.now()}));
  flow.place = by_use_.insert(by_use_.end(), &flow);
  by_key_[key] = &flow;
  ++counters_.udp_flows;
  return flow;
}

void UdpLayer::touch(Flow& flow) {
  flow.last_used = time_.now();
  by_use_.splice(by_use_.end(), by_use_, flow.place);
}

void UdpLayer::erase(Flow& flow) {
  by_use_.erase(flow.place);
  by_key_.erase(flow.key);
  slots_.erase(flow.id);
}

void UdpLayer::expire(Flow& flow) {
  const FlowId id = flow.id;
  erase(flow);
  handler_.on_expired(id);
}

void UdpLayer::input(const IpPacket& packet, const UdpDatagram& datagram) {
  const FlowKey key{packet.source, packet.destination, datagram.source_port, datagram.destination_port};
  const auto found = by_key_.find(key);
  const bool first = found == by_key_.end();
  Flow& flow = first ? create(key) : *found->second;
  touch(flow);
  handler_.on_datagram(flow.id, key, datagram.payload, first);
}

TimePoint UdpLayer::next_deadline() const {
  return by_use_.empty() ? TimePoint::max() : by_use_.front()->last_used + config_.udp.idle_timeout;
}

void UdpLayer::advance() {
  const TimePoint now = time_.now();
  while (next_deadline() <= now) expire(*by_use_.front());
}

std::optional<FlowId> UdpLayer::find(const FlowKey& key) const {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  return found->second->id;
}

Result<FlowId> UdpLayer::open(const FlowKey& key) {
  if (by_key_.contains(key)) return fail(ErrorCode::kAlreadyExists, "This flow exists");
  return create(key).id;
}

std::size_t UdpLayer::max_payload(const FlowKey& key) const {
  return config_.mtu - (key.guest.v6 ? kIpv6Header : kIpv4Header) - kUdpHeader;
}

bool UdpLayer::send(FlowId id, ByteView payload) {
  Flow* flow = slots_.find(id);
  if (flow == nullptr || payload.size() > max_payload(flow->key)) return false;
  touch(*flow);
  const IpPacket packet{flow->key.remote, flow->key.guest, kProtocolUdp, 0, {}};
  std::array<std::uint8_t, kUdpHeader> header{};
  write_udp(header.data(), packet, flow->key.remote_port, flow->key.guest_port, payload);
  if (!output_.send_ip(packet, header, payload)) return false;
  if (on_work_) on_work_();
  return true;
}

void UdpLayer::unreachable(FlowId id, Unreachable why) {
  Flow* flow = slots_.find(id);
  if (flow == nullptr) return;
  std::array<std::uint8_t, kUdpHeader> head{};
  store16(head.data(), flow->key.guest_port);
  store16(head.data() + 2, flow->key.remote_port);
  store16(head.data() + 4, kUdpHeader);
  send_unreachable(output_, {flow->key.guest, flow->key.remote, kProtocolUdp, 0, head}, why);
  erase(*flow);
  if (on_work_) on_work_();
}

void UdpLayer::close(FlowId id) {
  if (Flow* flow = slots_.find(id)) erase(*flow);
}

const FlowKey* UdpLayer::key(FlowId id) const {
  const Flow* flow = slots_.find(id);
  return flow == nullptr ? nullptr : &flow->key;
}

}  // namespace drupe::net
