// The packet plane at work: link, stack and host sockets in one event loop.
#pragma once

#include <memory>

#include "base/event_loop.h"
#include "net/stack/link.h"
#include "net/stack/stack.h"
#include "net/world/host_tcp.h"
#include "net/world/host_udp.h"

namespace drupe::net {

/// Owns everything between the guest's NIC and the host's sockets. One thread, that of `loop`, which must
/// outlive it, as must the gates. Nothing runs while nothing happens: an idle driver has no timer, and gives
/// the memory of its buffers back after five seconds.
class Driver {
 public:
  static Result<std::unique_ptr<Driver>> create(EventLoop& loop, UniqueFd link, StackConfig config,
                                                Gate& gate, UdpGate& udp_gate);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  [[nodiscard]] Stack& stack() { return stack_; }
  [[nodiscard]] HostTcp& tcp() { return tcp_; }
  [[nodiscard]] HostUdp& udp() { return udp_; }
  /// `call` when the link breaks: the other end is closed.
  void on_broken(std::function<void()> call) { on_broken_ = std::move(call); }

 private:
  Driver(EventLoop& loop, Link link, const StackConfig& config, Gate& gate, UdpGate& udp_gate);
  Status start();
  void on_link(std::uint32_t events);
  void receive();
  void flush();
  void after_flush(bool ready);
  void schedule_flush();
  void arm();
  void on_timer();
  void arm_trim();
  void broken();

  EventLoop& loop_;
  Link link_;
  SteadyTime time_;
  HostTcp tcp_;
  HostUdp udp_;
  Stack stack_;
  std::function<void()> on_broken_;
  std::function<void(ByteView)> on_frame_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // deferred calls may come after the end
  bool flush_pending_ = false, watching_out_ = false, trim_pending_ = false, active_ = false, ended_ = false;
  EventLoop::TimerId timer_ = 0, trim_timer_ = 0;
  TimePoint armed_at_ = TimePoint::max();
};

}  // namespace drupe::net
