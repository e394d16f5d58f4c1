// Ports of the host that lead to ports of the guest.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/event_loop.h"
#include "net/program/quota.h"
#include "net/world/host_tcp.h"
#include "protocol/net_control.h"

namespace drupe::net {

/// Owns the listeners and the accepted connections that no server in the guest has taken yet. One thread,
/// that of `loop`.
///
/// While the guest refuses a connection, it is kept and tried again every kRetry, for kPatience; then it is
/// reset. So the first request to a server that starts late arrives within moments of its listen(). Of many
/// that wait at one port only one is tried at a time, until one is taken.
class Publisher {
 public:
  /// `quota`: once it is spent, connections are reset. It lives longer.
  Publisher(EventLoop& loop, const Quota& quota) : loop_(loop), quota_(quota) {}
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  /// Binds every port; the error names the first that cannot be had, and then none is held.
  Status listen(const std::vector<Publication>& publications);
  /// Begins to accept. Connections come from `gateway`, to `guest`. `tcp` lives longer than any call.
  Status start(HostTcp& tcp, const PacketAddress& guest, const PacketAddress& gateway);
  /// Of Gate.
  void on_guest_refused(FlowId flow, UniqueFd socket);
  void on_gone(FlowId flow);
  /// Listens no more; what waits and what is open is reset.
  void close();

  static constexpr std::chrono::milliseconds kRetry{20};
  static constexpr std::chrono::seconds kPatience{30};
  /// Of each port; more are reset at once.
  static constexpr std::size_t kMaxWaiting = 64;
  /// Of all ports: whoever reaches them leaves the guest half of its connections for its own.
  static constexpr std::size_t kMaxOpen = 768;

 private:
  struct Waiting {
    UniqueFd socket;
    Deadline until;
  };
  struct Port {
    UniqueFd listener;
    std::uint16_t guest_port = 0;
    std::deque<Waiting> waiting;
    bool refused = false;  // since the last try
    EventLoop::TimerId timer = 0, accept_again = 0;
  };
  struct Attempt {
    Port* port = nullptr;
    Deadline until;
  };
  void on_listener(Port& port);
  void connect(Port& port, UniqueFd socket, Deadline until);
  void arm(Port& port);
  void retry(Port& port);
  void stop_listening();

  EventLoop& loop_;
  const Quota& quota_;
  HostTcp* tcp_ = nullptr;
  FlowKey towards_;  // without ports
  std::vector<std::unique_ptr<Port>> ports_;
  std::unordered_map<std::uint64_t, Attempt> attempts_;  // by flow; of open connections, too
};

}  // namespace drupe::net
