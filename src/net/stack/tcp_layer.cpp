#include "net/stack/tcp_layer.h"

#include <bit>

#include "net/stack/icmp.h"

namespace drupe::net {
namespace {

constexpr std::size_t kBudgetShare = 64;  // a new connection may take this part of what is left
constexpr std::uint16_t kFirstPort = 32768;
constexpr std::uint16_t kLastPort = 60999;

}  // namespace

TcpLayer::TcpLayer(const StackConfig& config, TimeSource& time, Output& output, Counters& counters,
                   TcpHandler& handler)
    : shared_{config, time, output, counters, handler}, by_key_(0, FlowKeyHash{config.secret}) {}

TcpConnection* TcpLayer::find(FlowId flow) const {
  TcpConnection* found = slots_.find(flow);
  return found != nullptr && found->state() != TcpConnection::State::kDead ? found : nullptr;
}

TcpConnection* TcpLayer::find(const FlowKey& key) const {
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || found->second->state() == TcpConnection::State::kDead) return nullptr;
  return found->second;
}

std::size_t TcpLayer::next_buffer_size() const {
  const auto& limits = shared_.config.tcp;
  const std::size_t left = limits.memory_budget > committed_ ? limits.memory_budget - committed_ : 0;
  return std::clamp(std::bit_floor(left / kBudgetShare), limits.smallest_buffer, limits.buffer_size);
}

// RFC 9293 3.4.1: a clock of 4 microseconds and a secret function of the addresses.
std::uint32_t TcpLayer::initial_sequence(const FlowKey& key) const {
  const auto ticks = shared_.time.now().time_since_epoch() / std::chrono::microseconds(4);
  const auto hash = FlowKeyHash{shared_.config.secret ^ 0x9e3779b97f4a7c15U}(key);
  return static_cast<std::uint32_t>(hash) + static_cast<std::uint32_t>(ticks);
}

// A connection in TIME-WAIT makes room for a new one.
bool TcpLayer::make_room() {
  bury();
  if (slots_.size() < shared_.config.tcp.max_connections) return true;
  TcpConnection* waiting = nullptr;
  slots_.for_each([&](TcpConnection& connection) {
    if (waiting == nullptr && connection.state() == TcpConnection::State::kTimeWait) waiting = &connection;
  });
  if (waiting == nullptr) return false;
  waiting->die();
  bury();
  return true;
}

TcpConnection* TcpLayer::create(const FlowKey& key) {
  if (shared_.half_open >= shared_.config.tcp.max_half_open || !make_room()) {
    shared_.counters.drop(DropReason::kTableFull);
    return nullptr;
  }
  const std::size_t buffer = next_buffer_size();
  committed_ += 2 * buffer;
  auto& connection = slots_.put(
      std::make_unique<TcpConnection>(shared_, key, slots_.next_id(), buffer, initial_sequence(key)));
  by_key_[key] = &connection;
  return &connection;
}

// Frees what died. Never while a callback or a method of a connection is on the stack.
void TcpLayer::bury() {
  for (TcpConnection* connection : shared_.dead) {
    if (connection->dirty) std::erase(shared_.dirty, connection);
    committed_ -= 2 * connection->buffer_size();
    if (const auto found = by_key_.find(connection->key());
        found != by_key_.end() && found->second == connection)
      by_key_.erase(found);
    if (on_standing_) on_standing_(connection->id(), nullptr);
    slots_.erase(connection->id());
  }
  shared_.dead.clear();
}

void TcpLayer::wake() {
  if (!inside_ && on_work_) on_work_();
}

void TcpLayer::input(const IpPacket& packet, const TcpSegment& segment) {
  const FlowKey key{packet.source, packet.destination, segment.source_port, segment.destination_port};
  inside_ = true;
  if (TcpConnection* connection = find(key); connection != nullptr) {
    // A new connection may begin in TIME-WAIT with a number beyond the old ones (RFC 9293 3.6.1).
    const bool reopens = connection->state() == TcpConnection::State::kTimeWait &&
                         segment.flags == tcp_flag::kSyn &&
                         seq_before(connection->receive_next(), segment.seq);
    if (reopens) {
      connection->die();
      input_syn(key, segment);
    } else {
      connection->input(segment);
    }
  } else {
    input_unknown(key, segment);
  }
  bury();
  inside_ = false;
}

void TcpLayer::input_unknown(const FlowKey& key, const TcpSegment& segment) {
  if (segment.has(tcp_flag::kRst)) return;
  constexpr std::uint8_t kDecisive = tcp_flag::kSyn | tcp_flag::kAck | tcp_flag::kFin;
  if ((segment.flags & kDecisive) == tcp_flag::kSyn)
    input_syn(key, segment);
  else
    reply_reset(key, segment);
}

void TcpLayer::input_syn(const FlowKey& key, const TcpSegment& segment) {
  TcpConnection* connection = create(key);
  if (connection == nullptr) return;
  connection->listen_syn(segment);
  shared_.handler.on_connect(connection->id(), key);
}

// RFC 9293 3.10.7.1.
void TcpLayer::reply_reset(const FlowKey& key, const TcpSegment& segment) {
  if (segment.has(tcp_flag::kAck))
    send_bare(key, bare_segment(segment.ack, 0, tcp_flag::kRst));
  else
    send_bare(key, bare_segment(0, segment.seq + segment.length(), tcp_flag::kRst | tcp_flag::kAck));
}

void TcpLayer::send_bare(const FlowKey& key, TcpSegment segment) {
  segment.source_port = key.remote_port;
  segment.destination_port = key.guest_port;
  const IpPacket packet{key.remote, key.guest, kProtocolTcp, 0, {}};
  std::array<std::uint8_t, kMaxTcpHeader> header{};
  const std::size_t size = write_tcp(header.data(), packet, segment, {}, {});
  shared_.output.send_ip(packet, ByteView(header).first(size), {});
}

bool TcpLayer::flush() {
  inside_ = true;
  bool ready = shared_.output.flush() && send_pending_resets();
  // Callbacks and connections that had their turn may make more work; one that the link refused waits.
  while (!shared_.dirty.empty()) {
    work_.swap(shared_.dirty);
    for (TcpConnection* connection : work_) connection->dirty = false;
    for (TcpConnection* connection : work_) {
      const auto progress = connection->work();
      if (connection->state() == TcpConnection::State::kDead || progress == TcpConnection::Progress::kIdle ||
          connection->dirty)
        continue;
      connection->dirty = true;
      (progress == TcpConnection::Progress::kBlocked ? blocked_ : shared_.dirty).push_back(connection);
    }
    work_.clear();
    bury();
  }
  // The first one had part of the link's room; next time it comes last.
  if (!blocked_.empty()) {
    ready = false;
    std::rotate(blocked_.begin(), blocked_.begin() + 1, blocked_.end());
    for (TcpConnection* connection : blocked_) connection->dirty = false;
    for (TcpConnection* connection : blocked_) {
      if (connection->state() == TcpConnection::State::kDead || connection->dirty) continue;
      connection->dirty = true;
      shared_.dirty.push_back(connection);
    }
    blocked_.clear();
  }
  ready = shared_.output.flush() && ready;
  bury();
  inside_ = false;
  return ready;
}

void TcpLayer::advance() {
  inside_ = true;
  const TimePoint now = shared_.time.now();
  while (Timed* due = shared_.timers.pop(now)) static_cast<TcpConnection*>(due)->on_timer(now);
  bury();
  inside_ = false;
}

void TcpLayer::accept(FlowId flow) {
  if (auto* connection = find(flow)) {
    connection->accept();
    if (on_standing_) on_standing_(flow, &connection->key());
    wake();
  }
}

void TcpLayer::refuse(FlowId flow) {
  abort(flow);
}

void TcpLayer::unreachable(FlowId flow, Unreachable why) {
  auto* connection = find(flow);
  if (connection == nullptr) return;
  const FlowKey& key = connection->key();
  // The head of the guest's SYN, which its kernel finds the socket by: ports and sequence number.
  std::array<std::uint8_t, 8> head{};
  store16(head.data(), key.guest_port);
  store16(head.data() + 2, key.remote_port);
  store32(head.data() + 4, connection->first_received());
  send_unreachable(shared_.output, {key.guest, key.remote, kProtocolTcp, 0, head}, why);
  connection->die();
  wake();
}

Result<FlowId> TcpLayer::open(FlowKey key) {
  if (key.remote_port == 0) {
    for (int tries = 0; tries <= kLastPort - kFirstPort && key.remote_port == 0; ++tries) {
      key.remote_port = next_port_;
      next_port_ = next_port_ == kLastPort ? kFirstPort : static_cast<std::uint16_t>(next_port_ + 1);
      if (by_key_.contains(key)) key.remote_port = 0;
    }
    if (key.remote_port == 0) return fail(ErrorCode::kLimit, "No port towards the guest is free");
  }
  if (by_key_.contains(key)) return fail(ErrorCode::kAlreadyExists, "This connection exists");
  const auto& limits = shared_.config.tcp;
  if (shared_.half_open >= limits.max_half_open || slots_.size() >= limits.max_connections) {
    shared_.counters.drop(DropReason::kTableFull);
    return fail(ErrorCode::kLimit, "The sandbox has too many connections");
  }
  TcpConnection* connection = create(key);
  if (connection == nullptr) return fail(ErrorCode::kLimit, "The sandbox has too many connections");
  connection->open();
  if (on_standing_) on_standing_(connection->id(), &connection->key());
  wake();
  return connection->id();
}

RingRoom TcpLayer::write_room(FlowId flow) {
  auto* connection = find(flow);
  return connection == nullptr ? RingRoom{} : connection->write_room();
}

void TcpLayer::commit(FlowId flow, std::size_t bytes) {
  if (auto* connection = find(flow)) {
    connection->commit(bytes);
    wake();
  }
}

RingView TcpLayer::readable(FlowId flow) const {
  const auto* connection = find(flow);
  return connection == nullptr ? RingView{} : connection->readable();
}

std::size_t TcpLayer::capacity(FlowId flow) const {
  const auto* connection = find(flow);
  return connection == nullptr ? 0 : connection->buffer_size();
}

bool TcpLayer::ended(FlowId flow) const {
  const auto* connection = find(flow);
  return connection != nullptr && connection->ended();
}

void TcpLayer::consume(FlowId flow, std::size_t bytes) {
  if (auto* connection = find(flow)) {
    connection->consume(bytes);
    wake();
  }
}

void TcpLayer::shutdown_write(FlowId flow) {
  if (auto* connection = find(flow)) {
    connection->shutdown_write();
    wake();
  }
}

void TcpLayer::abort(FlowId flow) {
  if (auto* connection = find(flow)) {
    connection->abort();
    wake();
  }
}

const FlowKey* TcpLayer::key(FlowId flow) const {
  const auto* connection = find(flow);
  return connection == nullptr ? nullptr : &connection->key();
}

FlowTable TcpLayer::flows() const {
  FlowTable table;
  slots_.for_each([&](const TcpConnection& connection) {
    using State = TcpConnection::State;
    if (connection.state() == State::kDead || connection.state() == State::kTimeWait) return;
    // Of an undecided SYN only the guest's number is known: the reset acknowledges it with number 0.
    const bool connecting = connection.state() == State::kConnecting;
    table.push_back({connection.key(), connecting ? 0 : connection.send_una(),
                     connecting ? 0 : connection.send_max(), connection.receive_next()});
  });
  return table;
}

void TcpLayer::reset_all(const FlowTable& table) {
  resets_ = table;
  pending_reset_ = 0;
  wake();
}

void TcpLayer::reset_all(std::vector<FlowKey> keys) {
  pokes_ = std::move(keys);
  wake();
}

bool TcpLayer::send_pending_resets() {
  constexpr std::size_t kFrames = 2 * (kEthernetHeader + kIpv6Header + kTcpHeader);
  for (; !pokes_.empty(); pokes_.pop_back()) {
    if (!shared_.output.room_for(kFrames) && !shared_.output.flush()) return false;
    if (find(pokes_.back()) == nullptr) send_bare(pokes_.back(), bare_segment(0, 0, tcp_flag::kSyn));
  }
  while (pending_reset_ < resets_.size()) {
    if (!shared_.output.room_for(kFrames) && !shared_.output.flush()) return false;
    const FlowRecord& record = resets_[pending_reset_++];
    if (find(record.key) != nullptr) continue;
    constexpr std::uint8_t kFlags = tcp_flag::kRst | tcp_flag::kAck;
    send_bare(record.key, bare_segment(record.send_max, record.receive_next, kFlags));
    if (record.send_una != record.send_max)
      send_bare(record.key, bare_segment(record.send_una, record.receive_next, kFlags));
  }
  resets_ = {};
  pending_reset_ = 0;
  return true;
}

}  // namespace drupe::net
