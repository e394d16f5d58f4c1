// Segments from the guest, in the order of checks of RFC 9293 3.10.7 with the stricter ones of RFC 5961.
#include "net/stack/tcp_connection.h"

namespace drupe::net {
namespace {

// Runs at least this long are offered to the handler from where they lie; shorter ones are collected until
// flush(), so that many small segments become one write to a socket.
constexpr std::size_t kOfferDirectly = 4096;
constexpr std::uint8_t kDuplicatesForRetransmit = 3;  // RFC 5681 3.2
constexpr std::uint8_t kMaxAcksDue = 4;
constexpr std::uint16_t kSmallestMss = 88;  // less would let the guest buy work too cheaply
constexpr std::chrono::milliseconds kChallengeInterval{5};
constexpr std::uint32_t kNoCongestion = 1U << 30;

}  // namespace

void TcpConnection::input(const TcpSegment& segment) {
  last_heard_ = shared_.time.now();
  probes_ = 0;
  switch (state_) {
    case State::kConnecting:
      input_connecting(segment);
      break;
    case State::kSynSent:
      input_syn_sent(segment);
      break;
    case State::kTimeWait:
      input_time_wait(segment);
      break;
    case State::kDead:
      return;
    case State::kSynReceived:
    case State::kOpen:
      input_synchronized(segment);
      break;
  }
  if (state_ != State::kDead) schedule();
}

void TcpConnection::take_options(const TcpSegment& segment) {
  const std::size_t ip_header = key_.guest.v6 ? kIpv6Header : kIpv4Header;
  const std::size_t room = shared_.config.mtu - ip_header - kTcpHeader;
  const std::uint16_t asked = segment.mss.value_or(key_.guest.v6 ? 1220 : 536);  // RFC 9293 3.7.1
  mss_ = static_cast<std::uint16_t>(std::min<std::size_t>(std::max(asked, kSmallestMss), room));
  scaling_ = segment.window_scale.has_value();
  snd_scale_ = segment.window_scale.value_or(0);
  irs_ = segment.seq;
  snd_wnd_ = max_wnd_ = segment.window;  // not scaled in a SYN
  wl1_ = segment.seq;
  wl2_ = segment.ack;
}

void TcpConnection::listen_syn(const TcpSegment& segment) {
  take_options(segment);
  schedule();
}

void TcpConnection::input_connecting(const TcpSegment& segment) {
  if (segment.has(tcp_flag::kRst)) {
    if (segment.seq == irs_ || segment.seq == irs_ + 1) close(CloseReason::kReset);
    return;
  }
  // The guest tries again, or its process did and began anew.
  if (segment.has(tcp_flag::kSyn) && !segment.has(tcp_flag::kAck)) take_options(segment);
}

void TcpConnection::input_syn_sent(const TcpSegment& segment) {
  const bool acks_syn = segment.has(tcp_flag::kAck) && segment.ack == iss_ + 1 && snd_max_ == segment.ack;
  if (segment.has(tcp_flag::kAck) && !acks_syn) {
    if (!segment.has(tcp_flag::kRst)) send_control(bare_segment(segment.ack, 0, tcp_flag::kRst));
    return;
  }
  if (segment.has(tcp_flag::kRst)) {
    if (acks_syn) close(CloseReason::kRefused);
    return;
  }
  if (!segment.has(tcp_flag::kSyn)) return;
  take_options(segment);
  rcv_adv_ = irs_ + 1 + static_cast<std::uint32_t>(std::min<std::size_t>(received_.capacity(), 65535));
  if (!acks_syn) {  // both sides opened
    state_ = State::kSynReceived;
    snd_nxt_ = iss_;
    mark_dirty();
    return;
  }
  acknowledge(segment.ack);
  acks_due_ = 1;
  establish();
}

void TcpConnection::input_time_wait(const TcpSegment& segment) {
  if (segment.has(tcp_flag::kRst)) {
    if (segment.seq == receive_next()) die();
    return;
  }
  if (!segment.has(tcp_flag::kFin)) return;
  acks_due_ = 1;
  time_wait_end_ = last_heard_ + shared_.config.tcp.time_wait;
  mark_dirty();
}

void TcpConnection::establish() {
  state_ = State::kOpen;
  --shared_.half_open;
  established_due_ = true;
  ++shared_.counters.tcp_opened;
  mark_dirty();
}

// An acknowledgement that tells an honest guest where we are, and an attacker nothing (RFC 5961 7: limited).
void TcpConnection::challenge() {
  shared_.counters.drop(DropReason::kBadSequence);
  if (last_heard_ - last_challenge_ < kChallengeInterval && last_challenge_ != TimePoint{}) return;
  last_challenge_ = last_heard_;
  ++shared_.counters.tcp_challenges;
  acks_due_ = std::max<std::uint8_t>(acks_due_, 1);
  mark_dirty();
}

bool TcpConnection::acceptable(const TcpSegment& segment) const {
  const std::uint32_t next = receive_next();
  const std::uint32_t window = seq_before(next, rcv_adv_) ? rcv_adv_ - next : 0;
  const auto within = [&](std::uint32_t seq) { return seq - next < window; };
  const std::uint32_t length = segment.length();
  if (segment.seq == next) return true;  // also with a closed window: its acknowledgement is news
  if (length == 0) return within(segment.seq);
  return within(segment.seq) || within(segment.seq + length - 1);
}

// RFC 5961 5.2.
bool TcpConnection::acknowledges_possible(std::uint32_t ack) const {
  return !seq_before(snd_max_, ack) && !seq_before(ack, snd_una_ - max_wnd_);
}

void TcpConnection::input_synchronized(TcpSegment segment) {
  if (state_ == State::kSynReceived && segment.has(tcp_flag::kSyn) && segment.seq == irs_) {
    if (!segment.has(tcp_flag::kAck)) {  // our answer was lost
      snd_nxt_ = iss_;
      mark_dirty();
      return;
    }
    segment.flags &=
        static_cast<std::uint8_t>(~tcp_flag::kSyn);  // both sides opened: it is the acknowledgement
    ++segment.seq;
  }
  if (!acceptable(segment)) {
    if (segment.has(tcp_flag::kRst)) {
      shared_.counters.drop(DropReason::kBadSequence);
    } else if (segment.length() > 0) {
      acks_due_ = std::max<std::uint8_t>(acks_due_, 1);
      mark_dirty();
    } else {
      challenge();
    }
    return;
  }
  if (segment.has(tcp_flag::kRst)) {
    if (segment.seq == receive_next())
      close(CloseReason::kReset);
    else
      challenge();
    return;
  }
  if (segment.has(tcp_flag::kSyn)) {
    challenge();
    return;
  }
  if (!segment.has(tcp_flag::kAck) || !input_ack(segment)) return;
  input_payload(segment);
}

bool TcpConnection::input_ack(const TcpSegment& segment) {
  if (state_ == State::kSynReceived) {
    if (segment.ack != iss_ + 1 || snd_max_ != segment.ack) {
      send_control(bare_segment(segment.ack, 0, tcp_flag::kRst));
      return false;
    }
    acknowledge(segment.ack);
    wl1_ = segment.seq - 1;  // the window of this segment is the first scaled one
    establish();
  } else if (!acknowledges_possible(segment.ack)) {
    challenge();
    return false;
  } else if (seq_before(snd_una_, segment.ack)) {
    acknowledge(segment.ack);
  } else if (segment.ack == snd_una_) {
    duplicate_ack(segment);
  }
  update_window(segment);
  return true;
}

void TcpConnection::acknowledge(std::uint32_t ack) {
  std::uint32_t count = ack - snd_una_;
  if (!syn_acked_) {
    syn_acked_ = true;
    --count;
    rto_ = shared_.config.tcp.syn_rto;
  }
  const auto data = static_cast<std::uint32_t>(std::min<std::size_t>(count, unacked_.size()));
  unacked_.consume(data);
  if (unacked_.size() == 0) unacked_.rewind();
  if (count > data) fin_acked_ = true;
  snd_una_ = ack;
  if (seq_before(snd_nxt_, ack)) snd_nxt_ = ack;

  if (timing_ && !seq_before(ack, rtt_seq_)) sample_rtt(last_heard_);
  if (srtt_.count() > 0)
    rto_ = std::clamp<std::chrono::nanoseconds>(srtt_ + 4 * rttvar_, shared_.config.tcp.min_rto,
                                                shared_.config.tcp.max_rto);
  retries_ = 0;
  retransmit_at_ = snd_una_ == snd_max_ ? TimePoint::max() : last_heard_ + rto_;
  duplicates_ = 0;
  if (recovering_) {
    recovering_ = seq_before(ack, recover_);
    first_again_ = recovering_;
  }
  if (cwnd_ < kNoCongestion) cwnd_ = std::min(kNoCongestion, cwnd_ + std::max<std::uint32_t>(data, mss_));
  if (write_full_ && unacked_.capacity() - unacked_.size() >= unacked_.capacity() / 2) {
    write_full_ = false;
    writable_due_ = true;
  }
  mark_dirty();
}

void TcpConnection::sample_rtt(TimePoint now) {
  timing_ = false;
  const std::chrono::nanoseconds sample =
      std::max<std::chrono::nanoseconds>(now - rtt_start_, std::chrono::nanoseconds(1));
  if (srtt_.count() == 0) {
    srtt_ = sample;
    rttvar_ = sample / 2;
    return;
  }
  const auto error = srtt_ > sample ? srtt_ - sample : sample - srtt_;
  rttvar_ = (3 * rttvar_ + error) / 4;
  srtt_ = (7 * srtt_ + sample) / 8;
}

void TcpConnection::duplicate_ack(const TcpSegment& segment) {
  if (snd_wnd_ == 0) retries_ = 0;  // an answer to a probe: the guest lives
  const std::uint32_t window = std::uint32_t{segment.window} << snd_scale_;
  if (snd_max_ == snd_una_ || segment.length() > 0 || window != snd_wnd_ || recovering_) return;
  if (++duplicates_ != kDuplicatesForRetransmit) return;
  recovering_ = first_again_ = true;
  recover_ = snd_max_;
  mark_dirty();
}

void TcpConnection::update_window(const TcpSegment& segment) {
  const bool newer = seq_before(wl1_, segment.seq) || (wl1_ == segment.seq && !seq_before(segment.ack, wl2_));
  if (!newer || seq_before(segment.ack, snd_una_)) return;
  wl1_ = segment.seq;
  wl2_ = segment.ack;
  const std::uint32_t window = std::uint32_t{segment.window} << snd_scale_;
  if (window > snd_wnd_) {
    mark_dirty();
    // The timer was that of a probe.
    if (snd_max_ == snd_una_) retransmit_at_ = TimePoint::max();
  }
  snd_wnd_ = window;
  max_wnd_ = std::max(max_wnd_, window);
}

void TcpConnection::input_payload(const TcpSegment& segment) {
  if (segment.length() == 0) return;
  // Distance from the next byte in order.
  std::int64_t offset = static_cast<std::int32_t>(segment.seq - data_next());
  ByteView payload = segment.payload;
  const std::int64_t end = offset + static_cast<std::int64_t>(payload.size());
  if (segment.has(tcp_flag::kFin)) note_fin(end);
  if (offset < 0) {
    const auto old = std::min(static_cast<std::size_t>(-offset), payload.size());
    payload = payload.subspan(old);
    offset += static_cast<std::int64_t>(old);
  }
  if (fin_seen_) {  // nothing comes behind the end
    const auto room = static_cast<std::int64_t>(fin_place_ - received_.next()) - offset;
    payload =
        payload.first(std::min(payload.size(), static_cast<std::size_t>(std::max<std::int64_t>(room, 0))));
  }
  const std::uint32_t before = receive_next();
  if (!payload.empty() && offset >= 0) store_payload(offset, payload);
  if (state_ == State::kDead) return;
  if (fin_seen_ && !fin_reached_ && received_.next() == fin_place_) {
    fin_reached_ = true;
    readable_due_ = true;  // who waits for more bytes must learn that none will come
  }
  // In order: one acknowledgement at flush() for all. A hole or an old segment: one for each, up to a few, so
  // that the guest retransmits at once.
  if (receive_next() != before && !received_.has_pieces())
    acks_due_ = std::max<std::uint8_t>(acks_due_, 1);
  else
    acks_due_ = std::min<std::uint8_t>(static_cast<std::uint8_t>(acks_due_ + 1), kMaxAcksDue);
  mark_dirty();
}

// The first FIN stays. One that contradicts bytes that are held is none.
void TcpConnection::note_fin(std::int64_t offset) {
  if (fin_seen_ || offset < 0) return;
  const std::uint64_t place = received_.next() + static_cast<std::uint64_t>(offset);
  if (place < received_.held_end() || place > received_.limit()) return;
  fin_seen_ = true;
  fin_place_ = place;
}

void TcpConnection::store_payload(std::int64_t offset, ByteView payload) {
  const std::uint64_t place = received_.next() + static_cast<std::uint64_t>(offset);
  const std::size_t before = received_.size();
  if (offset == 0 && before == 0 && !received_.has_pieces() && payload.size() >= kOfferDirectly &&
      !established_due_) {
    const std::size_t room = received_.limit() - received_.next();
    payload = payload.first(std::min(payload.size(), room));
    const std::size_t taken = std::min(shared_.handler.on_data(id_, payload), payload.size());
    if (state_ == State::kDead) return;
    received_.skip(taken);
    payload = payload.subspan(taken);
    received_.insert(received_.next(), payload);
    // Bytes that were shown and could not be kept (no memory) might come again with another content.
    if (received_.size() != payload.size()) {
      send_reset(snd_nxt_);
      close(CloseReason::kReset);
    }
    return;
  }
  received_.insert(place, payload);
  if (received_.size() > before) readable_due_ = true;
}

}  // namespace drupe::net
