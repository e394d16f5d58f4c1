// All TCP connections with the guest.
#pragma once

#include <functional>
#include <unordered_map>

#include "base/result.h"
#include "net/stack/flow_table.h"
#include "net/stack/slots.h"
#include "net/stack/tcp_connection.h"

namespace drupe::net {

/// Owns the connections. One thread. Functions that take a FlowId do nothing for a flow that is gone.
///
/// A guest's SYN becomes on_connect(); accept() completes the handshake, so the user calls it once its own
/// connection to the world stands. Bytes of the guest that the user does not take fill the connection's
/// buffer and then close its window; bytes for the guest are written into write_room(), which is as large as
/// the guest lets it be.
class TcpLayer {
 public:
  TcpLayer(const StackConfig& config, TimeSource& time, Output& output, Counters& counters,
           TcpHandler& handler);

  /// A segment whose addresses were checked.
  void input(const IpPacket& packet, const TcpSegment& segment);
  /// Callbacks and segments that are due. False: the link is full; call again when it is writable.
  bool flush();
  [[nodiscard]] TimePoint next_deadline() const { return shared_.timers.next(); }
  /// Runs timers that are due; flush() sends what they want sent.
  void advance();
  /// Called when flush() has something to do that it had not; not from within flush() or input().
  void on_work(std::function<void()> call) { on_work_ = std::move(call); }

  /// Completes a handshake for on_connect().
  void accept(FlowId flow);
  /// Answers RST: ECONNREFUSED.
  void refuse(FlowId flow);
  /// Answers ICMP.
  void unreachable(FlowId flow, Unreachable why);
  /// Connects to a port of the guest, which sees `key.remote` as its peer. on_established() or on_closed()
  /// follows. remote_port 0: chosen here. kAlreadyExists for a key in use, kLimit at a bound.
  Result<FlowId> open(FlowKey key);

  /// Where bytes for the guest go: fill and commit(). Empty while the guest takes none; on_writable() then
  /// tells of new room. Valid until the next call.
  [[nodiscard]] RingRoom write_room(FlowId flow);
  void commit(FlowId flow, std::size_t bytes);
  /// Stored bytes in order. Valid until the next call.
  [[nodiscard]] RingView readable(FlowId flow) const;
  /// Most that readable() can hold for this flow.
  [[nodiscard]] std::size_t capacity(FlowId flow) const;
  /// The guest ended its direction: nothing will follow what is readable().
  [[nodiscard]] bool ended(FlowId flow) const;
  /// Drops bytes from the front of readable(). Precondition: there are that many.
  void consume(FlowId flow, std::size_t bytes);
  /// No more bytes for the guest after those committed: FIN.
  void shutdown_write(FlowId flow);
  /// Sends RST and forgets.
  void abort(FlowId flow);
  /// nullptr when it is gone.
  [[nodiscard]] const FlowKey* key(FlowId flow) const;

  /// Connections as they are now.
  [[nodiscard]] FlowTable flows() const;
  /// Resets connections of an earlier life of this guest, as flush() finds the link ready: its processes see
  /// ECONNRESET instead of waiting for ever. Connections that exist here are left alone.
  ///
  /// Each gets RST at both ends of what may have been in flight. A guest that expects another number answers
  /// with a challenge (RFC 5961 3.2), and the answer to that, as to any segment of no connection, is a RST
  /// with the number it expects.
  void reset_all(const FlowTable& table);

  /// The same for connections of which only the addresses are known: each gets a SYN, which a guest that has
  /// the connection answers with a challenge whatever the number (RFC 5961 4.2).
  void reset_all(std::vector<FlowKey> keys);
  /// `call` when the guest may think that a connection stands, and with nullptr when it is gone; not for what
  /// was never accepted.
  void on_standing(std::function<void(FlowId, const FlowKey*)> call) { on_standing_ = std::move(call); }

  [[nodiscard]] std::size_t size() const { return slots_.size(); }

 private:
  [[nodiscard]] TcpConnection* find(FlowId flow) const;
  [[nodiscard]] TcpConnection* find(const FlowKey& key) const;
  TcpConnection* create(const FlowKey& key);
  void input_unknown(const FlowKey& key, const TcpSegment& segment);
  void input_syn(const FlowKey& key, const TcpSegment& segment);
  void reply_reset(const FlowKey& key, const TcpSegment& segment);
  void send_bare(const FlowKey& key, TcpSegment segment);
  [[nodiscard]] std::size_t next_buffer_size() const;
  [[nodiscard]] std::uint32_t initial_sequence(const FlowKey& key) const;
  bool make_room();
  void bury();
  void wake();
  bool send_pending_resets();

  TcpShared shared_;
  Slots<TcpConnection> slots_;
  std::unordered_map<FlowKey, TcpConnection*, FlowKeyHash> by_key_;
  std::vector<TcpConnection*> work_, blocked_;  // of flush(), kept for their memory
  FlowTable resets_;                            // from pending_reset_ on, still to be sent
  std::vector<FlowKey> pokes_;                  // taken from its end
  std::size_t pending_reset_ = 0;
  std::size_t committed_ = 0;  // bytes of buffers that connections may take
  std::uint16_t next_port_ = 32768;
  bool inside_ = false;
  std::function<void()> on_work_;
  std::function<void(FlowId, const FlowKey*)> on_standing_;
};

}  // namespace drupe::net
