#include "net/stack/tcp_connection.h"

#include <utility>

namespace drupe::net {
namespace {

constexpr std::uint32_t kNoCongestion = 1U << 30;
constexpr std::chrono::seconds kTrimAfter{5};

// Smallest shift with which `buffer` fits into the window field (RFC 7323 2.2).
std::uint8_t scale_for(std::size_t buffer) {
  std::uint8_t scale = 0;
  while (scale < 14 && (std::size_t{65535} << scale) < buffer) ++scale;
  return scale;
}

}  // namespace

TcpConnection::TcpConnection(TcpShared& shared, const FlowKey& key, FlowId id, std::size_t buffer,
                             std::uint32_t iss)
    : shared_(shared),
      key_(key),
      id_(id),
      unacked_(buffer),
      iss_(iss),
      snd_una_(iss),
      snd_nxt_(iss),
      snd_max_(iss),
      cwnd_(kNoCongestion),
      received_(buffer),
      rcv_scale_(scale_for(buffer)),
      rto_(shared.config.tcp.syn_rto),
      begun_(shared.time.now()),
      last_heard_(begun_) {
  ++shared_.half_open;
}

std::uint32_t TcpConnection::receive_next() const {
  return data_next() + (fin_reached_ ? 1U : 0U);
}

void TcpConnection::mark_dirty() {
  if (dirty || state_ == State::kDead) return;
  dirty = true;
  shared_.dirty.push_back(this);
}

void TcpConnection::die() {
  if (state_ == State::kDead) return;
  if (half_open()) --shared_.half_open;
  state_ = State::kDead;
  shared_.timers.remove(*this);
  shared_.dead.push_back(this);
}

void TcpConnection::close(CloseReason reason) {
  die();
  shared_.handler.on_closed(id_, reason);
}

void TcpConnection::accept() {
  if (state_ != State::kConnecting) return;
  state_ = State::kSynReceived;
  mark_dirty();
}

void TcpConnection::open() {
  state_ = State::kSynSent;
  scaling_ = true;
  mark_dirty();
}

void TcpConnection::shutdown_write() {
  if (fin_queued_ || state_ == State::kConnecting || state_ == State::kTimeWait) return;
  fin_queued_ = true;
  mark_dirty();
}

void TcpConnection::abort() {
  if (state_ == State::kConnecting)  // as to a closed port (RFC 9293 3.10.7.1)
    send_control(bare_segment(0, irs_ + 1, tcp_flag::kRst | tcp_flag::kAck));
  else if (state_ != State::kTimeWait)
    send_reset(snd_nxt_);
  die();
}

RingRoom TcpConnection::write_room() {
  if (state_ != State::kOpen || fin_queued_) return {};
  auto room = unacked_.room();
  if (size_of(room) == 0) write_full_ = true;
  return room;
}

void TcpConnection::commit(std::size_t bytes) {
  if (bytes == 0) return;
  unacked_.grow(bytes);
  if (unacked_.size() == unacked_.capacity()) write_full_ = true;
  mark_dirty();
}

void TcpConnection::consume(std::size_t bytes) {
  received_.consume(bytes);
  // The guest hears of new room when there is enough of it to be worth a segment (RFC 9293 3.8.6.2.2).
  if (wanted_edge() != rcv_adv_ && acks_due_ == 0 && state_ == State::kOpen && !fin_reached_) acks_due_ = 1;
  if (acks_due_ > 0 || (fin_reached_ && received_.size() == 0)) mark_dirty();
}

TcpConnection::Progress TcpConnection::work() {
  deliver();
  if (state_ == State::kDead) return Progress::kIdle;
  const Progress progress = output();
  finish_if_done();
  if (state_ != State::kDead) schedule();
  return progress;
}

void TcpConnection::deliver() {
  auto& handler = shared_.handler;
  if (std::exchange(established_due_, false)) handler.on_established(id_);
  if (state_ == State::kDead) return;
  if (std::exchange(readable_due_, false) && received_.size() > 0) handler.on_readable(id_);
  if (state_ == State::kDead) return;
  if (fin_reached_ && received_.size() == 0 && !eof_delivered_) {
    eof_delivered_ = true;
    handler.on_eof(id_);
  }
  if (state_ == State::kDead) return;
  if (std::exchange(writable_due_, false) && !fin_queued_) handler.on_writable(id_);
}

void TcpConnection::finish_if_done() {
  if (state_ != State::kOpen || !fin_acked_ || !eof_delivered_) return;
  if (!closed_first_) {
    close(CloseReason::kDone);
    return;
  }
  state_ = State::kTimeWait;
  unacked_.release();
  received_.trim();
  retransmit_at_ = TimePoint::max();
  time_wait_end_ = shared_.time.now() + shared_.config.tcp.time_wait;
  shared_.handler.on_closed(id_, CloseReason::kDone);
}

TimePoint TcpConnection::keepalive_at() const {
  const auto& limits = shared_.config.tcp;
  if (state_ != State::kOpen) return TimePoint::max();
  if (probes_ > 0) return last_probe_ + limits.keepalive_interval;
  return last_heard_ + (fin_sent_ || fin_reached_ ? limits.half_closed_idle : limits.keepalive_idle);
}

TimePoint TcpConnection::trim_at() const {
  const bool idle = unacked_.size() == 0 && received_.size() == 0 && !received_.has_pieces();
  if (!idle || (!unacked_.allocated() && !received_.allocated())) return TimePoint::max();
  return last_heard_ + kTrimAfter;
}

TimePoint TcpConnection::syn_given_up_at() const {
  if (state_ != State::kConnecting) return TimePoint::max();
  return last_heard_ +
         std::max<std::chrono::nanoseconds>(shared_.config.tcp.syn_patience, (last_heard_ - begun_) * 5 / 2);
}

TimePoint TcpConnection::deadline() const {
  return std::min({retransmit_at_, keepalive_at(), trim_at(), syn_given_up_at(), time_wait_end_});
}

void TcpConnection::on_timer(TimePoint now) {
  if (now >= time_wait_end_) {
    die();
    return;
  }
  if (now >= syn_given_up_at()) {  // in silence: one that comes after all is a new connection
    close(CloseReason::kTimedOut);
    return;
  }
  if (now >= trim_at()) {
    unacked_.release();
    received_.trim();
  }
  if (now >= retransmit_at_) on_retransmit_timer(now);
  if (state_ != State::kDead && now >= keepalive_at()) on_keepalive_timer(now);
  if (state_ != State::kDead) schedule();
}

void TcpConnection::on_retransmit_timer(TimePoint now) {
  const auto& limits = shared_.config.tcp;
  // What the link has not taken cannot have been lost.
  if (shared_.output.blocked()) {
    retransmit_at_ = now + rto_;
    return;
  }
  const bool syn = !syn_acked_;
  if (retries_ >= (syn ? limits.syn_retries : limits.retries)) {
    send_reset(snd_nxt_);
    close(CloseReason::kTimedOut);
    return;
  }
  ++retries_;
  rto_ = std::min<std::chrono::nanoseconds>(rto_ * 2, limits.max_rto);
  retransmit_at_ = now + rto_;
  timing_ = false;  // Karn's rule (RFC 6298 3)
  if (!syn && snd_wnd_ == 0) send_probe();
  if (snd_max_ == snd_una_) return;
  snd_nxt_ = snd_una_;
  recovering_ = first_again_ = false;
  duplicates_ = 0;
  if (!syn) cwnd_ = mss_;
  mark_dirty();
}

void TcpConnection::on_keepalive_timer(TimePoint now) {
  if (probes_ >= shared_.config.tcp.keepalive_probes) {
    send_reset(snd_nxt_);
    close(CloseReason::kTimedOut);
    return;
  }
  ++probes_;
  last_probe_ = now;
  send_probe();
}

}  // namespace drupe::net
