// What the host's network is now: its own addresses, and whether it reaches global IPv6.
#pragma once

#include <functional>
#include <memory>

#include "base/event_loop.h"
#include "net/policy/closed.h"

namespace drupe::net {

/// Asks the kernel over routing netlink (rtnetlink(7)) and listens for changes of addresses. Both sockets are
/// opened by create(), so it goes on working once no netlink socket can be opened any more. One thread, that
/// of `loop`.
///
/// IPv6 is there when a route leads to 2001:db8::1 (RFC 3849), an address that only a default route covers;
/// no packet is sent to find out. NAT64 prefixes other than the well-known one are not found out.
class HostWatch {
 public:
  static Result<std::unique_ptr<HostWatch>> create(EventLoop& loop);
  ~HostWatch();
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

  [[nodiscard]] const HostFacts& facts() const { return facts_; }
  /// `call` when facts() have changed. They are asked for at once when an address changes, and again
  /// kSettle later, because routes follow addresses; while changes go on, once in kSettle. When asking fails,
  /// the facts of before stay and it is tried again until it works, at last once in kLongestPause.
  void on_change(std::function<void()> call) { on_change_ = std::move(call); }

  static constexpr std::chrono::seconds kSettle{1};
  static constexpr std::chrono::seconds kLongestPause{32};
  /// More addresses are an error rather than a gap in what is closed.
  static constexpr std::size_t kMaxAddresses = 65536;

 private:
  HostWatch(EventLoop& loop, UniqueFd questions, UniqueFd events)
      : loop_(loop), questions_(std::move(questions)), events_(std::move(events)) {}
  Result<HostFacts> ask();
  Result<std::vector<IpAddress>> dump_addresses();
  void on_event();
  void refresh();
  void settle();
  void ask_again();

  EventLoop& loop_;
  UniqueFd questions_, events_;
  HostFacts facts_;
  std::uint32_t sequence_ = 0;
  EventLoop::TimerId timer_ = 0;  // 0: none runs
  bool changed_again_ = false;
  std::chrono::seconds pause_{0};  // before facts that are out of date are asked for again; 0: they are not
  std::function<void()> on_change_;
};

}  // namespace drupe::net
