// Frames on their way to the guest.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "net/stack/config.h"
#include "net/stack/counters.h"
#include "net/stack/ip.h"

namespace drupe::net {

/// One frame in pieces: headers, and up to two runs of payload that are sent from where they lie.
struct OutFrame {
  std::array<ByteView, 3> pieces;
  [[nodiscard]] std::size_t size() const { return pieces[0].size() + pieces[1].size() + pieces[2].size(); }
};

/// Takes frames; the link, or a test.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  /// Takes frames from the front and returns how many; fewer than all when the link is full. Nothing of them
  /// is used after the return.
  virtual std::size_t send(std::span<const OutFrame> frames) = 0;
};

/// Owns a bounded queue of small frames, which go out before anything else. TCP data is never queued here: a
/// connection keeps its bytes until they are acknowledged anyway, and builds its segments when the link takes
/// them.
class Output {
 public:
  Output(const StackConfig& config, FrameSink& sink, Counters& counters)
      : config_(config), sink_(sink), counters_(counters) {}

  /// Queues one frame from the gateway to the guest. `packet` gives addresses and protocol; `transport` is
  /// everything after the IP header. Dropped and counted when the queue is full.
  bool send_ip(const IpPacket& packet, ByteView transport_header, ByteView payload);
  bool send_arp(ByteView body);
  /// Sends now; the queue is empty before. Returns how many frames were taken.
  std::size_t send_frames(std::span<const OutFrame> frames);
  /// Sends what is queued. False: the link is full.
  bool flush();
  /// The link took less than it was given; cleared by writable().
  [[nodiscard]] bool blocked() const { return blocked_; }
  void writable() { blocked_ = false; }
  /// Whether a datagram of a host socket should be read at all.
  [[nodiscard]] bool half_full() const { return queued_bytes_ > config_.queue_bytes / 2; }
  [[nodiscard]] bool empty() const { return begin_ == queue_.size(); }
  [[nodiscard]] bool room_for(std::size_t bytes) const {
    return queued_bytes_ + bytes <= config_.queue_bytes;
  }
  [[nodiscard]] const StackConfig& config() const { return config_; }

 private:
  bool enqueue(std::vector<std::uint8_t>& frame);
  std::vector<std::uint8_t> take_buffer();
  void drop_sent();

  const StackConfig& config_;
  FrameSink& sink_;
  Counters& counters_;
  // A queue in one vector: frames from begin_ on wait. Buffers of sent frames are used again.
  std::vector<std::vector<std::uint8_t>> queue_;
  std::vector<std::vector<std::uint8_t>> spare_;
  std::size_t begin_ = 0;
  std::size_t queued_bytes_ = 0;
  bool blocked_ = false;
};

}  // namespace drupe::net
