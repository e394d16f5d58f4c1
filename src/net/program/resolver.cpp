#include "net/program/resolver.h"

#include <cerrno>
#include <cstring>

#include <sys/random.h>

#include "net/program/flow_number.h"

namespace drupe::net {
namespace {

// A client of dns::Proxy is a flow of one of the two layers; indices stay below 65536.
constexpr std::uint64_t kTcpClient = std::uint64_t{1} << 63;

std::uint64_t client_of(FlowId flow, dns::Transport transport) {
  return number_of(flow) | (transport == dns::Transport::kTcp ? kTcpClient : 0);
}

constexpr std::size_t kHeaderSize = 12;  // RFC 1035, 4.1.1

// Precondition: two bytes are there.
std::uint16_t identifier_of(std::string_view message) {
  std::uint16_t raw = 0;
  std::memcpy(&raw, message.data(), sizeof raw);
  return raw;
}

std::uint16_t random_number() {
  std::uint16_t value = 0;
  while (::getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}

Time now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

Resolver::Resolver(EventLoop& loop, std::vector<Endpoint> servers, std::shared_ptr<const Policy> policy,
                   Pins& pins, EgressLog& log, dns::Proxy::Options options)
    : loop_(loop),
      proxy_(std::move(policy), pins, log, random_number, std::move(options)),
      upstream_(
          loop, std::move(servers),
          [this](std::uint64_t token, dns::Transport transport, ByteView message) {
            carry(proxy_.on_upstream(token, transport, message, now()));
          },
          [this](std::uint64_t token) { carry(proxy_.on_upstream_failed(token, now())); }) {}

Resolver::~Resolver() {
  loop_.cancel(timer_);
}

void Resolver::on_datagram(FlowId flow, ByteView payload) {
  carry(proxy_.on_query(client_of(flow, dns::Transport::kUdp), dns::Transport::kUdp, payload, now()));
}

void Resolver::on_datagrams_gone(FlowId flow) {
  carry(proxy_.forget_client(client_of(flow, dns::Transport::kUdp)));
}

void Resolver::on_local_bytes(FlowId flow, ByteView bytes) {
  const std::uint64_t client = client_of(flow, dns::Transport::kTcp);
  connections_[client].framing.feed(bytes);
  for (;;) {
    const auto found = connections_.find(client);
    if (found == connections_.end()) return;
    const auto message = found->second.framing.next();
    if (!message) return;
    if (message->size() >= kHeaderSize) found->second.unanswered.insert(identifier_of(*message));
    carry(proxy_.on_query(client, dns::Transport::kTcp, as_bytes(*message), now()));
  }
}

void Resolver::on_local_end(FlowId flow) {
  Connection& connection = connections_[client_of(flow, dns::Transport::kTcp)];
  connection.ended = true;
  // RFC 7766, 6.2.4: queries that were sent before are answered.
  if (connection.unanswered.empty()) driver_->tcp().finish_local(flow);
}

void Resolver::on_connection_gone(FlowId flow) {
  const std::uint64_t client = client_of(flow, dns::Transport::kTcp);
  connections_.erase(client);
  carry(proxy_.forget_client(client));
}

void Resolver::carry(const dns::Output& output) {
  for (const auto token : output.closed) upstream_.close(token);
  for (const auto& forward : output.forwards) upstream_.send(forward);
  for (const auto& one : output.answers) answer(one);
  arm();
}

void Resolver::answer(const dns::Answer& answer) {
  const FlowId flow = flow_of(answer.client & ~kTcpClient);
  if (answer.transport == dns::Transport::kUdp)
    return driver_->udp().send_local(flow, as_bytes(answer.message));
  driver_->tcp().send_local(flow, dns::tcp_frame(answer.message));
  const auto found = connections_.find(answer.client);
  if (found == connections_.end()) return;
  found->second.unanswered.erase(identifier_of(answer.message));
  if (found->second.ended && found->second.unanswered.empty()) driver_->tcp().finish_local(flow);
}

void Resolver::arm() {
  loop_.cancel(timer_);
  timer_ = 0;
  const auto due = proxy_.next_deadline();
  if (!due) return;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(*due - now());
  timer_ = loop_.after(std::max(wait, std::chrono::milliseconds(0)), [this] {
    timer_ = 0;
    carry(proxy_.on_time(now()));
  });
}

}  // namespace drupe::net
