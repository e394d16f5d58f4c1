#include "net/program/policy_gate.h"

#include "net/program/addresses.h"
#include "net/program/flow_inspector.h"
#include "net/program/flow_number.h"

namespace drupe::net {
namespace {

Destination destination_of(const FlowKey& key, Protocol protocol) {
  return {protocol, ip_address(key.remote), key.remote_port};
}

Time now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

void PolicyGate::attach(Driver& driver) {
  driver_ = &driver;
  driver.tcp().on_bytes([this](std::size_t bytes) { count(bytes); });
  driver.udp().on_bytes([this](std::size_t bytes) { count(bytes); });
  parts_.peers.on_bytes([this](std::size_t bytes) { count(bytes); });
}

bool PolicyGate::is_gateway(const PacketAddress& address) const {
  const StackConfig& config = driver_->stack().config();
  const IpAddress asked = ip_address(address);
  return asked == ip_address(config.gateway_v4) || (config.gateway_v6 && address == *config.gateway_v6) ||
         address == link_local_of(config.gateway_mac);
}

std::string PolicyGate::refusal_before_policy(const FlowKey& key) const {
  if (parts_.quota.spent()) return "quota: " + std::to_string(parts_.quota.limit()) + " bytes are used up";
  return is_gateway(key.remote) && key.remote_port != kDnsPort ? "the gateway serves DNS only" : "";
}

void PolicyGate::refuse(const FlowKey& key, Protocol protocol, const std::string& rule) {
  ++refused_;
  LogEntry entry;
  entry.kind = LogKind::kConnection;
  entry.detail = to_string(protocol);
  entry.address = ip_address(key.remote);
  entry.port = key.remote_port;
  entry.rule = rule;
  parts_.log.add(std::move(entry), now());
}

Admission* PolicyGate::admit_flow(Admissions& flows, FlowId flow, const FlowKey& key, Protocol protocol) {
  auto admitted = admit(policy_, parts_.pins, parts_.log, destination_of(key, protocol), {}, now());
  if (!admitted.flow) {
    ++refused_;
    return nullptr;
  }
  ++admitted_;
  return (flows[number_of(flow)] = std::move(admitted.flow)).get();
}

void PolicyGate::on_connect(FlowId flow, const FlowKey& key) {
  if (parts_.peers.owns(key.remote)) return parts_.peers.connect(flow, key);
  ConnectVerdict verdict;
  if (const std::string rule = refusal_before_policy(key); !rule.empty()) {
    refuse(key, Protocol::kTcp, rule);
  } else if (is_gateway(key.remote)) {
    verdict.action = ConnectVerdict::Action::kLocal;
    verdict.local = &parts_.resolver;
  } else if (Admission* admission = admit_flow(tcp_, flow, key, Protocol::kTcp)) {
    verdict.action = ConnectVerdict::Action::kConnect;
    verdict.address = packet_address(ip_address(key.remote));
    verdict.port = key.remote_port;
    if (!admission->opaque()) verdict.inspector = std::make_unique<FlowInspector>(*admission);
  }
  driver_->tcp().decide(flow, std::move(verdict));
}

void PolicyGate::on_gone(FlowId flow, const FlowReport& /*report*/) {
  if (tcp_.erase(number_of(flow)) > 0 || parts_.peers.on_gone(flow)) return;
  parts_.publisher.on_gone(flow);
  parts_.resolver.on_connection_gone(flow);
}

void PolicyGate::on_guest_refused(FlowId flow, CloseReason reason, UniqueFd socket) {
  if (parts_.peers.on_guest_refused(flow, reason, socket)) return;
  parts_.publisher.on_guest_refused(flow, std::move(socket));
}

UdpVerdict PolicyGate::on_flow(FlowId flow, const FlowKey& key, ByteView /*first*/) {
  if (parts_.peers.owns(key.remote)) return parts_.peers.on_udp_flow(flow, key);
  UdpVerdict verdict;
  if (const std::string rule = refusal_before_policy(key); !rule.empty()) {
    refuse(key, Protocol::kUdp, rule);
  } else if (is_gateway(key.remote)) {
    verdict.action = UdpVerdict::Action::kLocal;
  } else if (admit_flow(udp_, flow, key, Protocol::kUdp) != nullptr) {
    verdict.action = UdpVerdict::Action::kConnect;
    verdict.address = packet_address(ip_address(key.remote));
    verdict.port = key.remote_port;
  }
  return verdict;
}

void PolicyGate::on_local(FlowId flow, const FlowKey& key, ByteView payload) {
  if (parts_.peers.on_udp(flow, key, payload)) return;
  parts_.resolver.on_datagram(flow, payload);
}

void PolicyGate::on_udp_gone(FlowId flow, std::uint64_t /*to_world*/, std::uint64_t /*to_guest*/) {
  if (parts_.peers.on_udp_gone(flow)) return;
  if (udp_.erase(number_of(flow)) == 0) parts_.resolver.on_datagrams_gone(flow);
}

void PolicyGate::set_policy(std::shared_ptr<const Policy> policy) {
  policy_ = std::move(policy);
  parts_.resolver.set_policy(policy_);
  std::vector<std::uint64_t> ended_tcp, ended_udp;
  for (const auto& [flow, admission] : tcp_)
    if (!admission->replace_policy(policy_, now())) ended_tcp.push_back(flow);
  for (const auto& [flow, admission] : udp_)
    if (!admission->replace_policy(policy_, now())) ended_udp.push_back(flow);
  for (const std::uint64_t flow : ended_tcp) driver_->tcp().refuse(flow_of(flow));
  for (const std::uint64_t flow : ended_udp) driver_->udp().close(flow_of(flow));
}

void PolicyGate::count(std::size_t bytes) {
  parts_.quota.use(bytes);
  parts_.ledger.set_used(parts_.quota.used());
  if (parts_.quota.spent()) quota_changed();
}

// Later: bytes are counted in the middle of a flow's work.
void PolicyGate::quota_changed() {
  if (!parts_.quota.spent() || std::exchange(ending_, true)) return;
  parts_.loop.defer([this] {
    ending_ = false;
    if (parts_.quota.spent()) end_all();
  });
}

void PolicyGate::end_all() {
  std::vector<FlowId> tcp, udp;
  const std::string rule = "quota: " + std::to_string(parts_.quota.limit()) + " bytes are used up";
  const auto note = [&](const FlowKey& key, Protocol protocol) {
    LogEntry entry;
    entry.kind = LogKind::kConnection;
    entry.detail = std::string(to_string(protocol)) + ", ended by the quota";
    entry.address = ip_address(key.remote);
    entry.port = key.remote_port;
    entry.rule = rule;
    parts_.log.add(std::move(entry), now());
  };
  driver_->tcp().for_each([&](FlowId flow, const FlowKey& key) {
    note(key, Protocol::kTcp);
    tcp.push_back(flow);
  });
  driver_->udp().for_each([&](FlowId flow, const FlowKey& key) {
    note(key, Protocol::kUdp);
    udp.push_back(flow);
  });
  for (const FlowId flow : tcp) driver_->tcp().refuse(flow);
  for (const FlowId flow : udp) driver_->udp().close(flow);
}

}  // namespace drupe::net
