// The whole packet plane between one guest's NIC and callbacks. Owns no descriptor and opens no socket.
#pragma once

#include "net/stack/icmp.h"
#include "net/stack/tcp_layer.h"
#include "net/stack/udp_layer.h"

namespace drupe::net {

[[nodiscard]] Result<StackConfig> validated(StackConfig config);

/// Frames in, frames out, callbacks between. One thread. `sink`, `time` and the handlers must outlive it.
///
/// The user calls input() for each frame of a batch, then flush(); writable() when a sink that was full is
/// not any more; advance() at next_deadline(). Every frame whose source MAC or IP is not the guest's is
/// dropped, and so are IPv4 and IPv6 fragments, DHCP, and everything to a group address.
class Stack {
 public:
  /// Precondition: `config` is validated().
  Stack(StackConfig config, FrameSink& sink, TimeSource& time, TcpHandler& tcp, UdpHandler& udp);
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  void input(ByteView frame);
  /// False: the link is full; wait for it and call writable().
  bool flush() { return tcp_.flush(); }
  bool writable() {
    output_.writable();
    return flush();
  }
  [[nodiscard]] TimePoint next_deadline() const {
    return std::min(tcp_.next_deadline(), udp_.next_deadline());
  }
  void advance() {
    tcp_.advance();
    udp_.advance();
  }
  /// `call` when a call from outside made work for flush().
  void on_work(const std::function<void()>& call) {
    tcp_.on_work(call);
    udp_.on_work(call);
    on_work_ = call;
  }
  /// nullptr: nobody but the gateway answers. It lives longer than any frame.
  void use_icmp(IcmpHandler* others) { icmp_ = others; }
  /// See net/stack/icmp.h. A body that is too short or does not fit into the link's MTU is dropped.
  void send_echo(const PacketAddress& remote, bool reply, ByteView body);
  void refuse_echo(const PacketAddress& remote, ByteView body);

  [[nodiscard]] TcpLayer& tcp() { return tcp_; }
  [[nodiscard]] UdpLayer& udp() { return udp_; }
  [[nodiscard]] const StackConfig& config() const { return config_; }
  [[nodiscard]] const Counters& counters() const { return counters_; }
  /// So many small frames wait for the link that host sockets should not be read for more of them.
  [[nodiscard]] bool congested() const { return output_.half_full(); }

 private:
  void input_v4(ByteView packet);
  void input_v6(ByteView packet);
  void input_icmpv6_message(const IpPacket& packet);
  void dispatch(const IpPacket& packet);
  [[nodiscard]] bool good_destination(const PacketAddress& destination) const;

  StackConfig config_;
  Counters counters_;
  Output output_;
  PacketAddress guest_link_local_;
  TcpLayer tcp_;
  UdpLayer udp_;
  IcmpHandler* icmp_ = nullptr;
  std::function<void()> on_work_;
};

}  // namespace drupe::net
