// Real sockets behind the guest's UDP flows.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/event_loop.h"
#include "net/stack/udp_layer.h"
#include "net/world/gate.h"

namespace drupe::net {

/// One connected socket for each flow, so that only the peer the guest spoke to can answer. One thread.
class HostUdp final : public UdpHandler {
 public:
  HostUdp(EventLoop& loop, UdpGate& gate);
  ~HostUdp() override;
  HostUdp(const HostUdp&) = delete;
  HostUdp& operator=(const HostUdp&) = delete;
  /// Once, before any frame.
  void attach(UdpLayer& stack) { stack_ = &stack; }

  /// Frames wait for the link: sockets are not read (their kernel buffers fill, then datagrams are lost
  /// there).
  void pause();
  void resume();
  [[nodiscard]] bool paused() const { return paused_; }
  /// A flow towards a port of the guest, of kLocal. kAlreadyExists for a key in use.
  Result<FlowId> open_local(const FlowKey& key);
  /// Ends a flow with an answer.
  void refuse(FlowId flow, Unreachable why);
  /// A datagram for the guest on a flow of kLocal.
  void send_local(FlowId flow, ByteView payload);
  /// `call` for every datagram's payload; it must not end flows.
  void on_bytes(std::function<void(std::size_t)> call) { on_bytes_ = std::move(call); }
  /// Ends a flow without an answer.
  void close(FlowId flow);
  void for_each(const std::function<void(FlowId, const FlowKey&)>& call) const;
  [[nodiscard]] std::uint64_t to_world() const { return to_world_; }
  [[nodiscard]] std::uint64_t to_guest() const { return to_guest_; }

  void on_datagram(FlowId flow, const FlowKey& key, ByteView payload, bool first) override;
  void on_expired(FlowId flow) override;

 private:
  struct Flow {
    FlowId id;
    FlowKey key;
    UniqueFd socket;  // none: local
    std::uint64_t to_world = 0, to_guest = 0;
  };
  [[nodiscard]] Flow* find(FlowId flow) const;
  void count_to_guest(Flow& flow, std::size_t bytes);
  bool begin(FlowId flow, const FlowKey& key, ByteView first);
  void on_socket(FlowId flow);
  void failed(FlowId flow, int error);
  void remove(Flow& flow);

  EventLoop& loop_;
  UdpGate& gate_;
  UdpLayer* stack_ = nullptr;
  std::vector<std::unique_ptr<Flow>> flows_;  // by FlowId::index
  std::vector<std::uint8_t> buffer_;          // one datagram, while a socket is read
  bool paused_ = false;
  std::uint64_t to_world_ = 0, to_guest_ = 0;
  std::function<void(std::size_t)> on_bytes_;
};

}  // namespace drupe::net
