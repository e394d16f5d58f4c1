#include "net/world/host_tcp.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "net/world/socket_address.h"

namespace drupe::net {
namespace {

// Bytes read from one socket before the others have their turn.
constexpr std::size_t kReadBudget = 512 * kKiB;
// Flow::pending: what is stored must be looked at though nothing was added.
constexpr std::size_t kLookAgain = ~std::size_t{0};

// close() then sends RST, not FIN.
void reset_on_close(int socket) {
  const linger now{1, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

FlowEnd end_for(CloseReason reason) {
  switch (reason) {
    case CloseReason::kDone:
      return FlowEnd::kDone;
    case CloseReason::kReset:
    case CloseReason::kRefused:
      return FlowEnd::kGuestReset;
    case CloseReason::kTimedOut:
      return FlowEnd::kGuestSilent;
  }
  return FlowEnd::kDone;
}

}  // namespace

struct HostTcp::Flow {
  FlowId id;
  FlowKey key;
  UniqueFd socket;
  PacketAddress address;
  std::uint16_t port = 0;
  std::unique_ptr<Inspector> inspector;
  std::size_t passed = 0;   // stored bytes from the front that may go
  std::size_t pending = 0;  // stored bytes behind them at the last look
  std::uint32_t events = 0;
  bool decided = false, watched = false, connecting = false, connected = false;
  bool established = false;  // the guest's side
  bool from_world = false;   // connect_guest()
  bool inspect_first = false;
  bool released = false;    // bytes of the world may go to the guest
  bool saw_end = false;     // the inspector knows that no more comes
  bool peer = false;        // the socket is a peer's
  bool peer_ended = false;  // whether in order is to be found out
  bool guest_eof = false, guest_eof_sent = false, world_eof = false;
  LocalService* local = nullptr;
  std::string local_out;      // for the guest, not yet in the stack
  bool local_finish = false;  // FIN behind them
  std::uint64_t to_world = 0, to_guest = 0;
};

HostTcp::HostTcp(EventLoop& loop, Gate& gate) : loop_(loop), gate_(gate) {}

HostTcp::~HostTcp() {
  for (const auto& flow : flows_)
    if (flow && flow->watched) loop_.unwatch(flow->socket.get());
}

HostTcp::Flow* HostTcp::find(FlowId id) const {
  if (id.index >= flows_.size() || !flows_[id.index] || flows_[id.index]->id != id) return nullptr;
  return flows_[id.index].get();
}

HostTcp::Flow& HostTcp::create(FlowId id, const FlowKey& key) {
  if (id.index >= flows_.size()) flows_.resize(id.index + 1);
  auto flow = std::make_unique<Flow>();
  flow->id = id;
  flow->key = key;
  return *(flows_[id.index] = std::move(flow));
}

std::size_t HostTcp::size() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(flows_, [](const auto& flow) { return flow != nullptr; }));
}

void HostTcp::for_each(const std::function<void(FlowId, const FlowKey&)>& call) const {
  for (const auto& flow : flows_)
    if (flow) call(flow->id, flow->key);
}

void HostTcp::remove(Flow& flow, FlowEnd end, int error) {
  if (flow.watched) loop_.unwatch(flow.socket.get());
  if (end != FlowEnd::kDone && flow.socket.valid()) reset_on_close(flow.socket.get());
  const FlowReport report{end, error, flow.to_world, flow.to_guest};
  const FlowId id = flow.id;
  flows_[id.index].reset();
  gate_.on_gone(id, report);
}

void HostTcp::abort(Flow& flow, FlowEnd end, int error) {
  stack_->abort(flow.id);
  remove(flow, end, error);
}

void HostTcp::refuse(FlowId id) {
  if (Flow* flow = find(id)) abort(*flow, FlowEnd::kRefused, 0);
}

void HostTcp::on_connect(FlowId id, const FlowKey& key) {
  create(id, key);
  gate_.on_connect(id, key);
}

void HostTcp::decide(FlowId id, ConnectVerdict verdict) {
  Flow* flow = find(id);
  if (flow == nullptr || flow->decided) return;
  flow->decided = true;
  if (verdict.action == ConnectVerdict::Action::kRefuse) return abort(*flow, FlowEnd::kRefused, 0);
  if (verdict.action == ConnectVerdict::Action::kUnreachable) {
    stack_->unreachable(id, verdict.why);
    return remove(*flow, FlowEnd::kRefused, 0);
  }
  if (verdict.action == ConnectVerdict::Action::kLocal) {
    flow->local = verdict.local;
    return stack_->accept(id);
  }
  flow->inspector = std::move(verdict.inspector);
  flow->released = flow->inspector == nullptr || flow->inspector->world_may_speak_first();
  flow->inspect_first = flow->inspector != nullptr && verdict.inspect_first;
  flow->address = verdict.address;
  flow->port = verdict.port;
  if (verdict.socket.valid()) {
    flow->socket = std::move(verdict.socket);
    flow->peer = verdict.peer;
    return connected(*flow);
  }
  if (flow->inspect_first)
    stack_->accept(id);
  else
    start(*flow);
}

void HostTcp::start(Flow& flow) {
  auto started = start_connect(flow.address, flow.port, SOCK_STREAM);
  flow.socket = std::move(started.socket);
  if (started.error == 0) return connected(flow);
  if (started.error != EINPROGRESS) return connect_failed(flow, started.error);
  flow.connecting = true;
  want(flow, EPOLLOUT);
}

void HostTcp::connect_failed(Flow& flow, int error) {
  const Unreachable why = unreachable_for(error);
  // A guest whose handshake is complete can only be told by a reset.
  if (flow.inspect_first || why == Unreachable::kPort) return abort(flow, FlowEnd::kConnectFailed, error);
  stack_->unreachable(flow.id, why);
  remove(flow, FlowEnd::kConnectFailed, error);
}

void HostTcp::connected(Flow& flow) {
  flow.connecting = false;
  flow.connected = true;
  const FlowId id = flow.id;
  if (!flow.established && !flow.from_world) stack_->accept(id);
  want(flow, 0);
  pump_to_world(flow);
  if (Flow* still = find(id)) pump_to_guest(*still);
}

Result<FlowId> HostTcp::connect_guest(const FlowKey& key, UniqueFd socket, bool peer) {
  DRUPE_ASSIGN(const FlowId id, stack_->open(key));
  Flow& flow = create(id, *stack_->key(id));
  flow.socket = std::move(socket);
  flow.decided = flow.released = flow.connected = flow.from_world = true;
  flow.peer = peer;
  return id;
}

// Level-triggered: only what can make progress is asked for.
void HostTcp::want(Flow& flow, std::uint32_t events) {
  if (flow.watched && flow.events == events) return;
  flow.events = events;
  // A peer's socket that is closed on the other side is reported whatever is asked for.
  if (flow.peer && events == 0) {
    if (std::exchange(flow.watched, false)) loop_.unwatch(flow.socket.get());
    return;
  }
  if (flow.watched) {
    (void)loop_.modify(flow.socket.get(), events);
    return;
  }
  const FlowId id = flow.id;
  flow.watched =
      loop_.watch(flow.socket.get(), events, [this, id](std::uint32_t ready) { on_socket(id, ready); })
          .has_value();
}

void HostTcp::on_socket(FlowId id, std::uint32_t events) {
  Flow* flow = find(id);
  if (flow == nullptr) return;
  if (flow->connecting) {
    if (const int error = take_socket_error(flow->socket.get()); error != 0)
      return connect_failed(*flow, error);
    return connected(*flow);
  }
  if ((events & EPOLLERR) != 0) {
    if (const int error = take_socket_error(flow->socket.get()); error != 0)
      return abort(*flow, FlowEnd::kWorldReset, error);
  }
  if ((events & EPOLLOUT) != 0) {
    pump_to_world(*flow);
    flow = find(id);
    if (flow == nullptr) return;
  }
  if ((events & (EPOLLIN | EPOLLHUP)) != 0) pump_to_guest(*flow);
}

void HostTcp::on_established(FlowId id) {
  Flow* flow = find(id);
  if (flow == nullptr) return;
  flow->established = true;
  if (flow->from_world) {
    gate_.on_guest_accepted(id);
    flow = find(id);
    if (flow == nullptr) return;
  }
  if (flow->local != nullptr) return pump_local(*flow);
  if (flow->connected) pump_to_guest(*flow);
}

void HostTcp::on_writable(FlowId id) {
  Flow* flow = find(id);
  if (flow == nullptr) return;
  if (flow->local != nullptr) return pump_local(*flow);
  pump_to_guest(*flow);
}

void HostTcp::carried(std::uint64_t Flow::* of_flow, std::uint64_t& of_all, Flow& flow, std::size_t bytes) {
  flow.*of_flow += bytes;
  of_all += bytes;
  if (on_bytes_ && bytes > 0) on_bytes_(bytes);
}

// False: the flow is gone.
bool HostTcp::show_world(Flow& flow, const RingRoom& room, std::size_t bytes) {
  for (const auto piece : room) {
    const ByteView part(piece.data(), std::min(piece.size(), bytes));
    bytes -= part.size();
    if (part.empty() || !flow.inspector->wants_world()) continue;
    if (flow.inspector->on_world(part)) continue;
    abort(flow, FlowEnd::kRefused, 0);
    return false;
  }
  flow.pending = kLookAgain;
  loop_.defer([this, id = flow.id] { on_readable(id); });
  return true;
}

void HostTcp::pump_to_guest(Flow& flow) {
  if (!flow.connected || !flow.established || !flow.released || flow.world_eof || flow.peer_ended)
    return rest(flow);
  for (std::size_t total = 0; total < kReadBudget;) {
    const RingRoom room = stack_->write_room(flow.id);
    if (size_of(room) == 0) return rest(flow);
    iovec pieces[2] = {{room[0].data(), room[0].size()}, {room[1].data(), room[1].size()}};
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = room[1].empty() ? 1 : 2;
    // Never waits: whether a peer's socket blocks is not for us alone to say.
    const ssize_t count = ::recvmsg(flow.socket.get(), &message, MSG_DONTWAIT);
    if (count < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) break;
      return abort(flow, FlowEnd::kWorldReset, errno);
    }
    if (count == 0) return end_of_world(flow);
    const auto bytes = static_cast<std::size_t>(count);
    if (flow.inspector && flow.inspector->wants_world() && !show_world(flow, room, bytes)) return;
    stack_->commit(flow.id, bytes);
    carried(&Flow::to_guest, to_guest_, flow, bytes);
    total += bytes;
    if (bytes < size_of(room)) break;  // most likely all there was
  }
  want(flow, flow.events | EPOLLIN);
}

void HostTcp::end_of_world(Flow& flow) {
  if (!flow.peer) {
    flow.world_eof = true;
    stack_->shutdown_write(flow.id);
    return rest(flow);
  }
  flow.peer_ended = true;
  rest(flow);
  // Later: finding out may end other flows, and the stack may be in the middle of this one.
  loop_.defer([this, id = flow.id] {
    if (find(id) == nullptr) return;
    const bool well = gate_.peer_ended_well(id);
    Flow* still = find(id);
    if (still == nullptr) return;
    if (!well) return abort(*still, FlowEnd::kWorldReset, 0);
    still->world_eof = true;
    stack_->shutdown_write(id);
    rest(*still);
  });
}

// Nothing is read for now. A socket of which both directions have ended is reported whatever is asked for, so
// one that is not written either is not watched at all.
void HostTcp::rest(Flow& flow) {
  if (!flow.watched) return;
  if (flow.guest_eof_sent) {
    loop_.unwatch(flow.socket.get());
    flow.watched = false;
    return;
  }
  want(flow, flow.events & ~static_cast<std::uint32_t>(EPOLLIN));
}

// Returns how many bytes the socket took; asks to be called again when it did not take all.
std::size_t HostTcp::send_some(Flow& flow, const RingView& bytes) {
  iovec pieces[2];
  msghdr message{};
  message.msg_iov = pieces;
  for (const ByteView piece : bytes)
    if (!piece.empty())
      pieces[message.msg_iovlen++] = {const_cast<std::uint8_t*>(piece.data()), piece.size()};
  if (message.msg_iovlen == 0) return 0;
  ssize_t count = 0;
  do {
    count = ::sendmsg(flow.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && errno != EAGAIN) {
    // Later: the stack may be in the middle of this flow.
    loop_.defer([this, id = flow.id, error = errno] {
      if (Flow* still = find(id)) abort(*still, FlowEnd::kWorldReset, error);
    });
    return 0;
  }
  const std::size_t taken = count > 0 ? static_cast<std::size_t>(count) : 0;
  if (taken < size_of(bytes)) want(flow, flow.events | EPOLLOUT);
  carried(&Flow::to_world, to_world_, flow, taken);
  return taken;
}

// False: the flow is gone.
bool HostTcp::inspect(Flow& flow, ByteView pending, bool end) {
  const auto verdict = flow.inspector->look(pending, end);
  const std::size_t pass = verdict.finished ? pending.size() : std::min(verdict.pass, pending.size());
  // The guest's window closes before the buffer is quite full, so half of it is taken for full.
  const bool full = size_of(stack_->readable(flow.id)) >= stack_->capacity(flow.id) / 2;
  const bool stuck = pass == 0 && flow.passed == 0 && !pending.empty() && full;
  if (verdict.refuse || stuck || (end && pass < pending.size())) {
    abort(flow, FlowEnd::kRefused, 0);
    return false;
  }
  flow.passed += pass;
  flow.pending = pending.size() - pass;
  flow.saw_end = end;
  if (pass > 0 || verdict.finished) flow.released = true;
  if (verdict.finished) flow.inspector.reset();
  return true;
}

std::size_t HostTcp::on_data(FlowId id, ByteView bytes) {
  Flow* flow = find(id);
  if (flow == nullptr) return 0;
  if (flow->local != nullptr) {
    carried(&Flow::to_world, to_world_, *flow, bytes.size());
    flow->local->on_local_bytes(id, bytes);
    return bytes.size();
  }
  const bool was_released = flow->released;
  if (flow->inspector) {
    if (!inspect(*flow, bytes, false)) return 0;
    if (!was_released && flow->released) loop_.defer([this, id] { on_writable(id); });
  } else {
    flow->passed = bytes.size();
  }
  if (!flow->connected) {
    if (flow->passed > 0 && flow->inspect_first && !flow->connecting) {
      // Not from within: a connection that fails at once would end the flow under the stack's feet.
      loop_.defer([this, id] { on_readable(id); });
    }
    return 0;
  }
  const std::size_t taken = send_some(*flow, {bytes.first(flow->passed), {}});
  flow->passed -= taken;
  return taken;
}

void HostTcp::on_readable(FlowId id) {
  if (Flow* flow = find(id)) pump_to_world(*flow);
}

// False: the flow is gone.
bool HostTcp::inspect_stored(Flow& flow) {
  const RingView stored = stack_->readable(flow.id);
  const std::size_t total = size_of(stored);
  if (!flow.inspector) {
    flow.passed = total;
    return true;
  }
  const bool end = stack_->ended(flow.id);
  const std::size_t pending = total - flow.passed;
  if (pending == 0 || (pending == flow.pending && end == flow.saw_end)) return true;
  if (flow.passed >= stored[0].size())
    return inspect(flow, stored[1].subspan(flow.passed - stored[0].size()), end);
  const ByteView first = stored[0].subspan(flow.passed);
  if (stored[1].empty()) return inspect(flow, first, end);
  contiguous_.assign(first.begin(), first.end());
  contiguous_.insert(contiguous_.end(), stored[1].begin(), stored[1].end());
  return inspect(flow, contiguous_, end);
}

// What came before the service could take it.
void HostTcp::deliver_local(Flow& flow) {
  const FlowId id = flow.id;
  const RingView stored = stack_->readable(id);
  const std::string bytes = std::string(as_text(stored[0])) + std::string(as_text(stored[1]));
  if (bytes.empty()) return;
  stack_->consume(id, bytes.size());
  carried(&Flow::to_world, to_world_, flow, bytes.size());
  flow.local->on_local_bytes(id, as_bytes(bytes));
}

void HostTcp::send_local(FlowId id, std::string_view bytes) {
  Flow* flow = find(id);
  if (flow == nullptr || flow->local == nullptr || flow->local_finish) return;
  flow->local_out += bytes;
  if (flow->local_out.size() <= kMaxLocalBacklog) return pump_local(*flow);
  flow->local_finish = true;  // nothing more is taken until it is gone
  loop_.defer([this, id] { refuse(id); });
}

void HostTcp::finish_local(FlowId id) {
  Flow* flow = find(id);
  if (flow == nullptr || flow->local == nullptr) return;
  flow->local_finish = true;
  pump_local(*flow);
}

void HostTcp::pump_local(Flow& flow) {
  if (!flow.established) return;
  std::size_t done = 0;
  while (done < flow.local_out.size()) {
    const RingRoom room = stack_->write_room(flow.id);
    if (size_of(room) == 0) break;
    std::size_t filled = 0;
    for (const auto piece : room) {
      const std::size_t part = std::min(piece.size(), flow.local_out.size() - done - filled);
      std::memcpy(piece.data(), flow.local_out.data() + done + filled, part);
      filled += part;
    }
    stack_->commit(flow.id, filled);
    carried(&Flow::to_guest, to_guest_, flow, filled);
    done += filled;
  }
  flow.local_out.erase(0, done);
  if (flow.local_finish && flow.local_out.empty()) stack_->shutdown_write(flow.id);
}

void HostTcp::pump_to_world(Flow& flow) {
  if (!flow.decided) return;
  if (flow.local != nullptr) return deliver_local(flow);
  const FlowId id = flow.id;
  const bool was_released = flow.released;
  if (!inspect_stored(flow)) return;
  if (!flow.connected) {
    if (flow.passed > 0 && flow.inspect_first && !flow.connecting) start(flow);
    return;
  }
  send_stored(flow);
  if (flow.guest_eof) end_to_world(flow);
  if (!was_released && flow.released)
    if (Flow* still = find(id)) pump_to_guest(*still);
}

void HostTcp::send_stored(Flow& flow) {
  RingView stored = stack_->readable(flow.id);
  stored[0] = stored[0].first(std::min(stored[0].size(), flow.passed));
  stored[1] = stored[1].first(std::min(stored[1].size(), flow.passed - stored[0].size()));
  if (size_of(stored) == 0) return want(flow, flow.events & ~static_cast<std::uint32_t>(EPOLLOUT));
  const std::size_t taken = send_some(flow, stored);
  flow.passed -= taken;
  stack_->consume(flow.id, taken);
  if (taken == size_of(stored)) want(flow, flow.events & ~static_cast<std::uint32_t>(EPOLLOUT));
}

void HostTcp::on_eof(FlowId id) {
  Flow* flow = find(id);
  if (flow == nullptr) return;
  flow->guest_eof = true;
  if (flow->local != nullptr) return flow->local->on_local_end(id);
  if (flow->inspector && !flow->released) {
    // It opened, sent nothing and closed.
    if (!inspect(*flow, {}, true)) return;
    if (!flow->released) {
      stack_->shutdown_write(id);
      flow->world_eof = true;
    }
  }
  if (flow->connected) end_to_world(*flow);
}

void HostTcp::end_to_world(Flow& flow) {
  if (std::exchange(flow.guest_eof_sent, true)) return;
  if (flow.peer)
    gate_.end_peer(flow.id, flow.socket.get());
  else
    ::shutdown(flow.socket.get(), SHUT_WR);
  if (flow.world_eof) rest(flow);
}

void HostTcp::on_closed(FlowId id, CloseReason reason) {
  Flow* flow = find(id);
  if (flow == nullptr) return;
  if (flow->from_world && !flow->established) {
    UniqueFd socket = std::move(flow->socket);
    flows_[id.index].reset();
    gate_.on_guest_refused(id, reason, std::move(socket));
    return;
  }
  remove(*flow, end_for(reason), 0);
}

}  // namespace drupe::net
