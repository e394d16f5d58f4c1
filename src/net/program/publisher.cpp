#include "net/program/publisher.h"

#include <cerrno>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <netinet/in.h>
#include <netinet/tcp.h>

#include "base/log.h"
#include "net/program/addresses.h"
#include "net/program/flow_number.h"
#include "net/world/socket_address.h"

namespace drupe::net {
namespace {

constexpr int kBacklog = 128;
constexpr int kAcceptsPerTurn = 32;
// After accept() failed for want of descriptors or memory.
constexpr std::chrono::milliseconds kAcceptAgain{100};

void reset(UniqueFd socket) {
  const linger now{1, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

// Without SO_REUSEPORT: a port that another sandbox publishes is not shared with it.
Result<UniqueFd> listen_on(const Publication& publication) {
  const std::string what =
      "Publishing port " + std::to_string(publication.host_port) + " of " + publication.address + " failed";
  const auto address = packet_address(publication.address);
  if (!address || publication.host_port == 0 || publication.guest_port == 0)
    return fail(ErrorCode::kInvalidArgument, what + ": it takes a numeric address and ports of 1 to 65535");
  UniqueFd fd(::socket(address->v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fail_sys(what, errno);
  const int on = 1;
  // Connections of an earlier process that linger do not keep the port; listeners do.
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->v6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  const SocketAddress at = socket_address(*address, publication.host_port);
  if (::bind(fd.get(), at.get(), at.size) == 0 && ::listen(fd.get(), kBacklog) == 0) return fd;
  if (errno != EADDRINUSE) return fail_sys(what, errno);
  return fail_errno(ErrorCode::kAlreadyExists, what + ": something else uses it", EADDRINUSE);
}

}  // namespace

Publisher::~Publisher() {
  stop_listening();
}

void Publisher::stop_listening() {
  for (const auto& port : ports_) {
    loop_.unwatch(port->listener.get());
    loop_.cancel(port->timer);
    loop_.cancel(port->accept_again);
    for (Waiting& waiting : port->waiting) reset(std::move(waiting.socket));
  }
  ports_.clear();
}

void Publisher::close() {
  std::vector<FlowId> flows;
  for (const auto& [flow, attempt] : attempts_) flows.push_back(flow_of(flow));
  attempts_.clear();
  for (const FlowId flow : flows) tcp_->refuse(flow);
  stop_listening();
}

Status Publisher::listen(const std::vector<Publication>& publications) {
  std::vector<std::unique_ptr<Port>> ports;
  for (const Publication& publication : publications) {
    auto port = std::make_unique<Port>();
    port->guest_port = publication.guest_port;
    DRUPE_ASSIGN(port->listener, listen_on(publication));
    ports.push_back(std::move(port));
  }
  ports_ = std::move(ports);
  return {};
}

Status Publisher::start(HostTcp& tcp, const PacketAddress& guest, const PacketAddress& gateway) {
  tcp_ = &tcp;
  towards_.guest = guest;
  towards_.remote = gateway;
  for (const auto& port : ports_)
    DRUPE_TRY(loop_.watch(port->listener.get(), EPOLLIN,
                          [this, raw = port.get()](std::uint32_t) { on_listener(*raw); }));
  return {};
}

void Publisher::on_listener(Port& port) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    UniqueFd socket(::accept4(port.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        (void)loop_.modify(port.listener.get(), 0);
        port.accept_again = loop_.after(kAcceptAgain, [this, &port] {
          port.accept_again = 0;
          (void)loop_.modify(port.listener.get(), EPOLLIN);
        });
      }
      return;
    }
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const Deadline until = Clock::now() + kPatience;
    if (port.waiting.empty())
      connect(port, std::move(socket), until);
    else if (port.waiting.size() < kMaxWaiting)
      port.waiting.push_back({std::move(socket), until});
    else
      reset(std::move(socket));
  }
}

void Publisher::connect(Port& port, UniqueFd socket, Deadline until) {
  if (quota_.spent() || attempts_.size() >= kMaxOpen) return reset(std::move(socket));
  FlowKey key = towards_;
  key.guest_port = port.guest_port;
  // The error leaves the socket closed: too many connections, and its peer sees it end.
  const auto flow = tcp_->connect_guest(key, std::move(socket));
  if (flow) attempts_[number_of(*flow)] = {&port, until};
}

void Publisher::on_gone(FlowId flow) {
  attempts_.erase(number_of(flow));
}

void Publisher::on_guest_refused(FlowId flow, UniqueFd socket) {
  const auto attempt = attempts_.extract(number_of(flow));
  if (attempt.empty()) return;
  Port& port = *attempt.mapped().port;
  port.refused = true;
  if (Clock::now() >= attempt.mapped().until || port.waiting.size() >= kMaxWaiting)
    return reset(std::move(socket));
  port.waiting.push_front({std::move(socket), attempt.mapped().until});
  arm(port);
}

void Publisher::arm(Port& port) {
  if (port.timer != 0 || port.waiting.empty()) return;
  port.timer = loop_.after(kRetry, [this, &port] {
    port.timer = 0;
    retry(port);
  });
}

void Publisher::retry(Port& port) {
  while (!port.waiting.empty() && Clock::now() >= port.waiting.front().until) {
    reset(std::move(port.waiting.front().socket));
    port.waiting.pop_front();
  }
  // The last try came back: one more finds out. It did not: a server listens, and all go.
  std::size_t count = std::exchange(port.refused, false) ? 1 : port.waiting.size();
  for (; count > 0 && !port.waiting.empty(); --count) {
    Waiting next = std::move(port.waiting.front());
    port.waiting.pop_front();
    connect(port, std::move(next.socket), next.until);
  }
  arm(port);
}

}  // namespace drupe::net
