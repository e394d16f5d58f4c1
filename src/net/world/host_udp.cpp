#include "net/world/host_udp.h"

#include <cerrno>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "net/world/socket_address.h"

namespace drupe::net {
namespace {

constexpr std::size_t kLargestDatagram = 65535;
constexpr int kDatagramsPerTurn = 32;

}  // namespace

HostUdp::HostUdp(EventLoop& loop, UdpGate& gate) : loop_(loop), gate_(gate) {}

HostUdp::~HostUdp() {
  for (const auto& flow : flows_)
    if (flow && flow->socket.valid()) loop_.unwatch(flow->socket.get());
}

HostUdp::Flow* HostUdp::find(FlowId id) const {
  if (id.index >= flows_.size() || !flows_[id.index] || flows_[id.index]->id != id) return nullptr;
  return flows_[id.index].get();
}

void HostUdp::for_each(const std::function<void(FlowId, const FlowKey&)>& call) const {
  for (const auto& flow : flows_)
    if (flow) call(flow->id, flow->key);
}

void HostUdp::remove(Flow& flow) {
  if (flow.socket.valid()) loop_.unwatch(flow.socket.get());
  const FlowId id = flow.id;
  const std::uint64_t out = flow.to_world, in = flow.to_guest;
  flows_[id.index].reset();
  gate_.on_udp_gone(id, out, in);
}

void HostUdp::close(FlowId id) {
  Flow* flow = find(id);
  if (flow == nullptr) return;
  stack_->close(id);
  remove(*flow);
}

void HostUdp::on_expired(FlowId id) {
  if (Flow* flow = find(id)) remove(*flow);
}

void HostUdp::failed(FlowId id, int error) {
  stack_->unreachable(id, unreachable_for(error));
  if (Flow* flow = find(id)) remove(*flow);
}

// False: there is no flow.
bool HostUdp::begin(FlowId id, const FlowKey& key, ByteView first) {
  const UdpVerdict verdict = gate_.on_flow(id, key, first);
  if (verdict.action == UdpVerdict::Action::kRefuse) {
    stack_->unreachable(id, verdict.why);
    return false;
  }
  if (verdict.action == UdpVerdict::Action::kDrop) {
    stack_->close(id);
    return false;
  }
  UniqueFd socket;
  if (verdict.action == UdpVerdict::Action::kConnect) {
    auto started = start_connect(verdict.address, verdict.port, SOCK_DGRAM);
    if (started.error == 0) {
      const auto watched = loop_.watch(started.socket.get(), paused_ ? 0U : EPOLLIN,
                                       [this, id](std::uint32_t) { on_socket(id); });
      if (!watched) started.error = watched.error().sys_errno;
    }
    if (started.error != 0) {
      stack_->unreachable(id, unreachable_for(started.error));
      // The gate has taken note of a flow that never was.
      gate_.on_udp_gone(id, 0, 0);
      return false;
    }
    socket = std::move(started.socket);
  }
  if (id.index >= flows_.size()) flows_.resize(id.index + 1);
  flows_[id.index] = std::make_unique<Flow>(Flow{id, key, std::move(socket)});
  return true;
}

void HostUdp::on_datagram(FlowId id, const FlowKey& key, ByteView payload, bool first) {
  if (first && !begin(id, key, payload)) return;
  Flow* flow = find(id);
  if (flow == nullptr) return;
  flow->to_world += payload.size();
  to_world_ += payload.size();
  if (on_bytes_) on_bytes_(payload.size());
  if (!flow->socket.valid()) return gate_.on_local(id, key, payload);
  const ssize_t sent =
      ::send(flow->socket.get(), payload.data(), payload.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  // A full socket loses the datagram, as a network does; too large for the world's MTU likewise.
  if (sent < 0 && errno != EAGAIN && errno != EMSGSIZE && errno != ENOBUFS && errno != EINTR)
    failed(id, errno);
}

void HostUdp::count_to_guest(Flow& flow, std::size_t bytes) {
  flow.to_guest += bytes;
  to_guest_ += bytes;
  if (on_bytes_) on_bytes_(bytes);
}

Result<FlowId> HostUdp::open_local(const FlowKey& key) {
  DRUPE_ASSIGN(const FlowId id, stack_->open(key));
  if (id.index >= flows_.size()) flows_.resize(id.index + 1);
  flows_[id.index] = std::make_unique<Flow>(Flow{id, key, UniqueFd()});
  return id;
}

void HostUdp::refuse(FlowId id, Unreachable why) {
  stack_->unreachable(id, why);
  if (Flow* flow = find(id)) remove(*flow);
}

void HostUdp::send_local(FlowId id, ByteView payload) {
  Flow* flow = find(id);
  if (flow == nullptr) return;
  count_to_guest(*flow, payload.size());
  stack_->send(id, payload);
}

void HostUdp::on_socket(FlowId id) {
  buffer_.resize(kLargestDatagram);
  for (int i = 0; i < kDatagramsPerTurn; ++i) {
    Flow* flow = find(id);
    if (flow == nullptr) return;
    if (paused_) {
      // An error is told however little is asked for, until it is taken.
      if (const int error = take_socket_error(flow->socket.get()); error != 0) failed(id, error);
      return;
    }
    const ssize_t size = ::recv(flow->socket.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (size < 0) {
      if (errno != EAGAIN && errno != EINTR) failed(id, errno);
      return;
    }
    const auto bytes = static_cast<std::size_t>(size);
    count_to_guest(*flow, bytes);
    stack_->send(id, ByteView(buffer_).first(bytes));
  }
}

void HostUdp::pause() {
  if (std::exchange(paused_, true)) return;
  for (const auto& flow : flows_)
    if (flow && flow->socket.valid()) (void)loop_.modify(flow->socket.get(), 0);
}

void HostUdp::resume() {
  if (!std::exchange(paused_, false)) return;
  for (const auto& flow : flows_)
    if (flow && flow->socket.valid()) (void)loop_.modify(flow->socket.get(), EPOLLIN);
}

}  // namespace drupe::net
