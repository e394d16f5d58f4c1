// UDP conversations with the guest.
#pragma once

#include <functional>
#include <list>
#include <optional>
#include <unordered_map>

#include "base/result.h"
#include "net/stack/output.h"
#include "net/stack/slots.h"
#include "net/stack/tcp_types.h"
#include "net/stack/transport.h"

namespace drupe::net {

/// Callbacks of the UDP side; they may call UdpLayer.
class UdpHandler {
 public:
  virtual ~UdpHandler() = default;
  /// `first`: the flow is new.
  virtual void on_datagram(FlowId flow, const FlowKey& key, ByteView payload, bool first) = 0;
  /// The flow was idle too long or made room for another.
  virtual void on_expired(FlowId flow) = 0;
};

/// Owns the flows: one for each pair of addresses and ports. One thread.
class UdpLayer {
 public:
  UdpLayer(const StackConfig& config, TimeSource& time, Output& output, Counters& counters,
           UdpHandler& handler);

  /// A datagram whose addresses were checked.
  void input(const IpPacket& packet, const UdpDatagram& datagram);
  [[nodiscard]] TimePoint next_deadline() const;
  void advance();
  /// Called when a datagram waits in the queue; the stack must be flushed.
  void on_work(std::function<void()> call) { on_work_ = std::move(call); }

  [[nodiscard]] std::optional<FlowId> find(const FlowKey& key) const;
  /// A flow towards a port of the guest. kAlreadyExists for a key in use.
  Result<FlowId> open(const FlowKey& key);
  /// Largest payload for `key` that fits into the link's MTU; larger ones are dropped, never fragmented.
  [[nodiscard]] std::size_t max_payload(const FlowKey& key) const;
  /// False: dropped, because it is too large or the queue is full.
  bool send(FlowId flow, ByteView payload);
  /// Answers ICMP, which the guest's socket reports as an error of its next call, and ends the flow.
  void unreachable(FlowId flow, Unreachable why);
  /// Ends it without a word. on_expired() is not called.
  void close(FlowId flow);
  [[nodiscard]] const FlowKey* key(FlowId flow) const;
  [[nodiscard]] std::size_t size() const { return slots_.size(); }

 private:
  struct Flow {
    FlowKey key;
    FlowId id;
    TimePoint last_used;
    std::list<Flow*>::iterator place{};
  };
  Flow& create(const FlowKey& key);
  void touch(Flow& flow);
  void erase(Flow& flow);
  void expire(Flow& flow);

  const StackConfig& config_;
  TimeSource& time_;
  Output& output_;
  Counters& counters_;
  UdpHandler& handler_;
  Slots<Flow> slots_;
  std::unordered_map<FlowKey, Flow*, FlowKeyHash> by_key_;
  std::list<Flow*> by_use_;  // longest unused first
  std::function<void()> on_work_;
};

}  // namespace drupe::net
