// One TCP connection with the guest (RFC 9293, 5961, 6298, 7323 window scale only).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "net/stack/output.h"
#include "net/stack/receive_buffer.h"
#include "net/stack/tcp_types.h"
#include "net/stack/timer_heap.h"
#include "net/stack/transport.h"

namespace drupe::net {

class TcpConnection;

/// `a` comes before `b` (RFC 9293 3.4: arithmetic modulo 2^32).
[[nodiscard]] inline bool seq_before(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b) < 0;
}

/// What connections share; belongs to TcpLayer.
struct TcpShared {
  static constexpr std::size_t kBatch = 16;
  static constexpr std::size_t kHeaderRoom = kEthernetHeader + kIpv6Header + kMaxTcpHeader;

  const StackConfig& config;
  TimeSource& time;
  Output& output;
  Counters& counters;
  TcpHandler& handler;
  TimerHeap timers{};
  std::vector<TcpConnection*> dirty{};  ///< Have something to deliver or to send.
  std::size_t half_open = 0;            ///< Connections that are not established yet.
  std::vector<TcpConnection*> dead{};   ///< To be freed when no callback runs.
  std::array<std::array<std::uint8_t, kHeaderRoom>, kBatch> headers{};
};

/// Owned by TcpLayer, used by one thread. Holds no allocation but its two buffers.
class TcpConnection : public Timed {
 public:
  enum class State : std::uint8_t {
    kConnecting,   ///< The guest's SYN waits for a decision.
    kSynSent,      ///< open()
    kSynReceived,  ///< accept(), or both sides opened.
    kOpen,         ///< Established, and every state of closing until both directions have ended.
    kTimeWait,
    kDead,
  };
  enum class Progress : std::uint8_t { kIdle, kMore, kBlocked };

  /// `buffer`: bytes for each direction.
  TcpConnection(TcpShared& shared, const FlowKey& key, FlowId id, std::size_t buffer, std::uint32_t iss);

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const FlowKey& key() const { return key_; }
  [[nodiscard]] FlowId id() const { return id_; }
  [[nodiscard]] std::size_t buffer_size() const { return received_.capacity(); }
  [[nodiscard]] bool half_open() const { return state_ < State::kOpen; }

  // From the guest.
  void input(const TcpSegment& segment);
  // For the user; see TcpLayer.
  void listen_syn(const TcpSegment& segment);
  void accept();
  void open();
  void shutdown_write();
  void abort();
  [[nodiscard]] RingRoom write_room();
  void commit(std::size_t bytes);
  [[nodiscard]] RingView readable() const { return received_.readable(); }
  [[nodiscard]] bool ended() const { return fin_reached_; }
  void consume(std::size_t bytes);

  /// Callbacks that are due, then segments that are due, at most one batch.
  Progress work();
  void on_timer(TimePoint now);
  void schedule() { shared_.timers.schedule(*this, deadline()); }
  /// No further callback; the layer frees it.
  void die();

  // For the table of flows and for unreachable messages.
  [[nodiscard]] std::uint32_t first_received() const { return irs_; }
  [[nodiscard]] std::uint32_t send_una() const { return snd_una_; }
  [[nodiscard]] std::uint32_t send_max() const { return snd_max_; }
  [[nodiscard]] std::uint32_t receive_next() const;

  bool dirty = false;  ///< In TcpShared::dirty.

 private:
  // tcp_input.cpp
  void input_connecting(const TcpSegment& segment);
  void input_syn_sent(const TcpSegment& segment);
  void input_time_wait(const TcpSegment& segment);
  void input_synchronized(TcpSegment segment);
  [[nodiscard]] bool acceptable(const TcpSegment& segment) const;
  [[nodiscard]] bool acknowledges_possible(std::uint32_t ack) const;
  bool input_ack(const TcpSegment& segment);
  void acknowledge(std::uint32_t ack);
  void sample_rtt(TimePoint now);
  void duplicate_ack(const TcpSegment& segment);
  void update_window(const TcpSegment& segment);
  void input_payload(const TcpSegment& segment);
  void store_payload(std::int64_t offset, ByteView payload);
  void note_fin(std::int64_t offset);
  void challenge();
  void take_options(const TcpSegment& segment);
  void establish();
  // tcp_output.cpp
  Progress output();
  Progress output_syn();
  Progress output_segments();
  Progress output_acks();
  Progress output_first_again();
  std::size_t plan_segments(std::array<OutFrame, TcpShared::kBatch>& frames,
                            std::array<std::uint32_t, TcpShared::kBatch>& ends);
  void sent_up_to(std::uint32_t begin, std::uint32_t end);
  [[nodiscard]] std::size_t usable_window(std::uint32_t offset) const;
  [[nodiscard]] bool nothing_to_send() const;
  OutFrame build(std::size_t slot, TcpSegment segment, RingView payload);
  std::uint16_t advertise();
  [[nodiscard]] std::uint32_t wanted_edge() const;
  void send_control(TcpSegment segment);
  void send_probe();
  void send_reset(std::uint32_t seq);
  // tcp_connection.cpp
  void mark_dirty();
  void deliver();
  void finish_if_done();
  void close(CloseReason reason);
  [[nodiscard]] TimePoint deadline() const;
  [[nodiscard]] TimePoint keepalive_at() const;
  [[nodiscard]] TimePoint trim_at() const;
  [[nodiscard]] TimePoint syn_given_up_at() const;
  void on_retransmit_timer(TimePoint now);
  void on_keepalive_timer(TimePoint now);
  [[nodiscard]] std::uint32_t data_next() const {
    return irs_ + 1 + static_cast<std::uint32_t>(received_.next());
  }
  [[nodiscard]] IpPacket to_guest() const { return {key_.remote, key_.guest, kProtocolTcp, 0, {}}; }

  TcpShared& shared_;
  FlowKey key_;
  FlowId id_;
  State state_ = State::kConnecting;

  // Sending. The front of unacked_ has the sequence number snd_una_ once the SYN is acknowledged.
  ByteRing unacked_;
  std::uint32_t iss_, snd_una_, snd_nxt_, snd_max_;
  std::uint32_t snd_wnd_ = 0, max_wnd_ = 0;
  std::uint32_t wl1_ = 0, wl2_ = 0;  // segment of the last window update (RFC 9293 3.3.1)
  std::uint32_t cwnd_;         // limits only after a retransmission timeout; the link has no queue of its own
  std::uint32_t recover_ = 0;  // snd_max_ when fast recovery began
  std::uint16_t mss_ = 536;
  std::uint8_t snd_scale_ = 0, duplicates_ = 0;
  bool syn_acked_ = false, fin_queued_ = false, fin_sent_ = false, fin_acked_ = false;
  bool closed_first_ = false;  // our FIN went before the guest's came: TIME-WAIT is ours
  bool recovering_ = false, first_again_ = false, write_full_ = false;

  // Receiving.
  ReceiveBuffer received_;
  std::uint32_t irs_ = 0, rcv_adv_ = 0;  // rcv_adv_: right edge that the guest was told
  std::uint64_t fin_place_ = 0;
  std::uint8_t rcv_scale_ = 0, acks_due_ = 0;
  bool scaling_ = false, fin_seen_ = false, fin_reached_ = false, eof_delivered_ = false;
  bool readable_due_ = false, established_due_ = false, writable_due_ = false;

  // Time (RFC 6298).
  std::chrono::nanoseconds srtt_{0}, rttvar_{0}, rto_;
  std::uint32_t rtt_seq_ = 0;
  bool timing_ = false;
  std::uint8_t retries_ = 0, probes_ = 0;
  TimePoint begun_, rtt_start_{}, retransmit_at_ = TimePoint::max(), last_heard_{}, last_probe_{},
                                  last_challenge_{};
  TimePoint time_wait_end_ = TimePoint::max();
};

}  // namespace drupe::net
