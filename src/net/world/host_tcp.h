// Real sockets behind the guest's TCP connections.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/event_loop.h"
#include "net/stack/tcp_layer.h"
#include "net/world/gate.h"

namespace drupe::net {

/// Connects, and carries bytes both ways with back-pressure: a socket that does not take bytes closes the
/// guest's window, a guest that does not take bytes stops the reading of its socket. One thread, that of
/// `loop`.
///
/// Errors of the world become what the guest would have seen: refused → RST, unreachable → ICMP, reset → RST;
/// a guest's RST becomes a RST in the world.
class HostTcp final : public TcpHandler {
 public:
  HostTcp(EventLoop& loop, Gate& gate);
  ~HostTcp() override;
  HostTcp(const HostTcp&) = delete;
  HostTcp& operator=(const HostTcp&) = delete;
  /// Once, before any frame.
  void attach(TcpLayer& stack) { stack_ = &stack; }

  /// The answer to Gate::on_connect(). Ignored for a flow that is gone or decided.
  void decide(FlowId flow, ConnectVerdict verdict);
  /// Connects `socket`, a connected stream socket, to a port of the guest (TcpLayer::open()). The error
  /// leaves the socket closed.
  ///
  /// `peer`: the socket leads to a network process of another sandbox, by a Unix stream socket, of which the
  /// other end may be shared with somebody hostile. Such a socket has no reset; see Gate::end_peer().
  Result<FlowId> connect_guest(const FlowKey& key, UniqueFd socket, bool peer = false);
  /// Resets a connection on both sides: a rule changed, a quota is used up.
  void refuse(FlowId flow);
  /// For a flow of kLocal: bytes for the guest. One that leaves more than kMaxLocalBacklog unread is reset.
  void send_local(FlowId flow, std::string_view bytes);
  /// FIN behind what was sent.
  void finish_local(FlowId flow);
  /// `call` for every piece of payload that was carried, in either direction; it must not end flows.
  void on_bytes(std::function<void(std::size_t)> call) { on_bytes_ = std::move(call); }
  /// For every flow; `call` must not end flows.
  void for_each(const std::function<void(FlowId, const FlowKey&)>& call) const;
  [[nodiscard]] std::size_t size() const;
  /// Bytes of payload carried since the start.
  [[nodiscard]] std::uint64_t to_world() const { return to_world_; }
  [[nodiscard]] std::uint64_t to_guest() const { return to_guest_; }

  static constexpr std::size_t kMaxLocalBacklog = 256 * kKiB;

  void on_connect(FlowId flow, const FlowKey& key) override;
  void on_established(FlowId flow) override;
  std::size_t on_data(FlowId flow, ByteView bytes) override;
  void on_readable(FlowId flow) override;
  void on_eof(FlowId flow) override;
  void on_writable(FlowId flow) override;
  void on_closed(FlowId flow, CloseReason reason) override;

 private:
  struct Flow;
  [[nodiscard]] Flow* find(FlowId flow) const;
  Flow& create(FlowId flow, const FlowKey& key);
  void start(Flow& flow);
  void connected(Flow& flow);
  void connect_failed(Flow& flow, int error);
  void on_socket(FlowId id, std::uint32_t events);
  void want(Flow& flow, std::uint32_t events);
  void pump_to_guest(Flow& flow);
  void pump_to_world(Flow& flow);
  bool inspect(Flow& flow, ByteView pending, bool end);
  void end_of_world(Flow& flow);
  bool show_world(Flow& flow, const RingRoom& room, std::size_t bytes);
  void deliver_local(Flow& flow);
  void pump_local(Flow& flow);
  void carried(std::uint64_t Flow::* of_flow, std::uint64_t& of_all, Flow& flow, std::size_t bytes);
  bool inspect_stored(Flow& flow);
  void send_stored(Flow& flow);
  std::size_t send_some(Flow& flow, const RingView& bytes);
  void end_to_world(Flow& flow);
  void rest(Flow& flow);
  /// Ends a flow from our side: RST to the guest.
  void abort(Flow& flow, FlowEnd end, int error);
  void remove(Flow& flow, FlowEnd end, int error);

  EventLoop& loop_;
  Gate& gate_;
  TcpLayer* stack_ = nullptr;
  std::vector<std::unique_ptr<Flow>> flows_;  // by FlowId::index
  std::vector<std::uint8_t> contiguous_;      // for an inspector, where stored bytes wrap
  std::uint64_t to_world_ = 0, to_guest_ = 0;
  std::function<void(std::size_t)> on_bytes_;
};

}  // namespace drupe::net
