// Segments towards the guest.
#include "net/stack/tcp_connection.h"

namespace drupe::net {
namespace {

using enum TcpConnection::Progress;

std::size_t header_room(const PacketAddress& address) {
  return address.v6 ? kIpv6Header : kIpv4Header;
}

}  // namespace

OutFrame TcpConnection::build(std::size_t slot, TcpSegment segment, RingView payload) {
  segment.source_port = key_.remote_port;
  segment.destination_port = key_.guest_port;
  auto& header = shared_.headers[slot];
  const IpPacket packet = to_guest();
  const std::size_t transport = tcp_header_size(segment);
  const std::size_t at = write_ip_headers(header.data(), shared_.config.guest_mac, shared_.config.gateway_mac,
                                          packet, transport + size_of(payload));
  write_tcp(header.data() + at, packet, segment, payload[0], payload[1]);
  return {{ByteView(header.data(), at + transport), payload[0], payload[1]}};
}

void TcpConnection::send_control(TcpSegment segment) {
  segment.source_port = key_.remote_port;
  segment.destination_port = key_.guest_port;
  std::array<std::uint8_t, kMaxTcpHeader> header{};
  const IpPacket packet = to_guest();
  const std::size_t size = write_tcp(header.data(), packet, segment, {}, {});
  shared_.output.send_ip(packet, ByteView(header).first(size), {});
}

// A number below everything sent: the guest must answer with an acknowledgement (RFC 9293 3.8.4).
void TcpConnection::send_probe() {
  TcpSegment probe;
  probe.seq = snd_una_ - 1;
  probe.ack = receive_next();
  probe.flags = tcp_flag::kAck;
  probe.window = advertise();
  send_control(probe);
}

void TcpConnection::send_reset(std::uint32_t seq) {
  TcpSegment reset;
  reset.seq = seq;
  reset.ack = receive_next();
  reset.flags = state_ == State::kSynSent ? tcp_flag::kRst : tcp_flag::kRst | tcp_flag::kAck;
  send_control(reset);
}

// The right edge that may be offered: what was offered before, or more when that is worth a segment
// (RFC 9293 3.8.6.2.2).
std::uint32_t TcpConnection::wanted_edge() const {
  const auto room = static_cast<std::uint32_t>(received_.limit() - received_.next());
  const std::uint32_t edge = data_next() + room;
  const auto worth =
      static_cast<std::uint32_t>(std::min<std::size_t>(received_.capacity() / 2, 2 * std::size_t{mss_}));
  return static_cast<std::int32_t>(edge - rcv_adv_) >= static_cast<std::int32_t>(worth) ? edge : rcv_adv_;
}

std::uint16_t TcpConnection::advertise() {
  const std::uint32_t next = receive_next();
  const std::uint32_t edge = wanted_edge();
  const std::uint32_t window = seq_before(next, edge) ? edge - next : 0;
  const std::uint8_t scale = scaling_ ? rcv_scale_ : 0;
  const auto field = static_cast<std::uint16_t>(std::min<std::uint32_t>(window >> scale, 65535));
  const std::uint32_t told = next + (std::uint32_t{field} << scale);
  if (seq_before(rcv_adv_, told)) rcv_adv_ = told;
  return field;
}

std::size_t TcpConnection::usable_window(std::uint32_t offset) const {
  const std::uint32_t window = std::min(snd_wnd_, cwnd_);
  return window > offset ? window - offset : 0;
}

bool TcpConnection::nothing_to_send() const {
  const std::uint32_t offset = snd_nxt_ - snd_una_;
  return offset > unacked_.size() || (offset == unacked_.size() && !(fin_queued_ && !fin_acked_));
}

TcpConnection::Progress TcpConnection::output() {
  if (state_ == State::kConnecting || state_ == State::kDead) return kIdle;
  if (!syn_acked_) return output_syn();
  if (first_again_) {
    if (const auto progress = output_first_again(); progress != kIdle) return progress;
  }
  if (acks_due_ > 1) {  // duplicates that tell the guest of a hole have no payload
    if (const auto progress = output_acks(); progress != kIdle) return progress;
  }
  if (state_ == State::kOpen) {
    if (const auto progress = output_segments(); progress != kIdle) return progress;
    // A closed window is probed when nothing else would bring news of it (RFC 9293 3.8.6.1).
    if (!nothing_to_send() && snd_max_ == snd_una_ && retransmit_at_ == TimePoint::max())
      retransmit_at_ = shared_.time.now() + rto_;
  }
  return output_acks();
}

TcpConnection::Progress TcpConnection::output_syn() {
  acks_due_ = 0;
  if (snd_nxt_ != iss_) return kIdle;
  TcpSegment syn;
  syn.seq = iss_;
  syn.flags = tcp_flag::kSyn;
  if (state_ == State::kSynReceived) {
    syn.flags |= tcp_flag::kAck;
    syn.ack = irs_ + 1;
  }
  // The window of a SYN is never scaled (RFC 7323 2.2).
  syn.window = static_cast<std::uint16_t>(std::min<std::size_t>(received_.capacity(), 65535));
  syn.mss = static_cast<std::uint16_t>(shared_.config.mtu - header_room(key_.guest) - kTcpHeader);
  if (scaling_) syn.window_scale = rcv_scale_;
  const OutFrame frame = build(0, syn, {});
  if (shared_.output.send_frames({&frame, 1}) == 0) return kBlocked;
  rcv_adv_ = irs_ + 1 + syn.window;
  sent_up_to(iss_, iss_ + 1);
  return kIdle;
}

// `begin`..`end` went out.
void TcpConnection::sent_up_to(std::uint32_t begin, std::uint32_t end) {
  const TimePoint now = shared_.time.now();
  if (seq_before(begin, snd_max_)) {
    ++shared_.counters.tcp_retransmits;
  } else if (!timing_) {
    timing_ = true;
    rtt_seq_ = end;
    rtt_start_ = now;
  }
  if (seq_before(snd_nxt_, end)) snd_nxt_ = end;
  if (seq_before(snd_max_, end)) snd_max_ = end;
  if (retransmit_at_ == TimePoint::max()) retransmit_at_ = now + rto_;
}

std::size_t TcpConnection::plan_segments(std::array<OutFrame, TcpShared::kBatch>& frames,
                                         std::array<std::uint32_t, TcpShared::kBatch>& ends) {
  std::uint32_t offset = snd_nxt_ - snd_una_;
  std::size_t count = 0;
  while (count < TcpShared::kBatch && offset <= unacked_.size()) {
    const std::size_t unsent = unacked_.size() - offset;
    const std::size_t usable = usable_window(offset);
    const std::size_t length = std::min({unsent, usable, std::size_t{mss_}});
    const bool fin = fin_queued_ && !fin_acked_ && length == unsent && usable > length;
    if (length == 0 && !fin) break;
    // No small piece only because the window is small (RFC 9293 3.8.6.2.1).
    if (length < mss_ && length < unsent && offset > 0 && length < max_wnd_ / 2) break;
    TcpSegment segment;
    segment.seq = snd_una_ + offset;
    segment.ack = receive_next();
    segment.flags = tcp_flag::kAck;
    if (length == unsent && length > 0) segment.flags |= tcp_flag::kPsh;
    if (fin) segment.flags |= tcp_flag::kFin;
    segment.window = advertise();
    frames[count] = build(count, segment, unacked_.view(offset, length));
    offset += static_cast<std::uint32_t>(length) + (fin ? 1U : 0U);
    ends[count++] = snd_una_ + offset;
    if (fin) break;
  }
  return count;
}

TcpConnection::Progress TcpConnection::output_segments() {
  std::array<OutFrame, TcpShared::kBatch> frames;
  std::array<std::uint32_t, TcpShared::kBatch> ends{};
  const std::size_t count = plan_segments(frames, ends);
  if (count == 0) return kIdle;
  const std::size_t taken = shared_.output.send_frames(std::span(frames).first(count));
  for (std::size_t i = 0; i < taken; ++i) sent_up_to(snd_nxt_, ends[i]);
  if (taken > 0) acks_due_ = 0;
  if (fin_queued_ && !fin_sent_ && snd_max_ - snd_una_ > unacked_.size()) {
    fin_sent_ = true;
    closed_first_ = !fin_reached_;
  }
  if (taken < count) return kBlocked;
  return count == TcpShared::kBatch ? kMore : kIdle;
}

TcpConnection::Progress TcpConnection::output_acks() {
  while (acks_due_ > 0) {
    TcpSegment ack;
    ack.seq = snd_nxt_;
    ack.ack = receive_next();
    ack.flags = tcp_flag::kAck;
    ack.window = advertise();
    const OutFrame frame = build(0, ack, {});
    if (shared_.output.send_frames({&frame, 1}) == 0) return kBlocked;
    --acks_due_;
  }
  return kIdle;
}

// Fast retransmit (RFC 5681 3.2) and each further hole (RFC 6582 3.2 step 3).
TcpConnection::Progress TcpConnection::output_first_again() {
  const std::uint32_t outstanding = snd_max_ - snd_una_;
  const std::size_t length = std::min({unacked_.size(), std::size_t{mss_}, std::size_t{outstanding}});
  const bool fin = fin_sent_ && !fin_acked_ && length == unacked_.size();
  if (length == 0 && !fin) {
    first_again_ = false;
    return kIdle;
  }
  TcpSegment segment;
  segment.seq = snd_una_;
  segment.ack = receive_next();
  segment.flags = fin ? tcp_flag::kAck | tcp_flag::kFin : tcp_flag::kAck;
  segment.window = advertise();
  const OutFrame frame = build(0, segment, unacked_.view(0, length));
  if (shared_.output.send_frames({&frame, 1}) == 0) return kBlocked;
  first_again_ = timing_ = false;
  sent_up_to(snd_una_, snd_una_ + static_cast<std::uint32_t>(length) + (fin ? 1U : 0U));
  timing_ = false;
  return kIdle;
}

}  // namespace drupe::net
