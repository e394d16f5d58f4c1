#include "net/program/host_watch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/log.h"
#include "net/program/addresses.h"
#include "net/world/socket_address.h"

namespace drupe::net {
namespace {

constexpr std::size_t kReadSize = 65536;
constexpr int kMostTries = 5;  // of a dump that changes interrupt

Result<UniqueFd> open_netlink(std::uint32_t groups) {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd.valid()) return fail_sys("Opening a routing socket failed", errno);
  sockaddr_nl own{};
  own.nl_family = AF_NETLINK;
  own.nl_groups = groups;
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0)
    return fail_sys("Binding a routing socket failed", errno);
  return fd;
}

// The interface's own address: IFA_LOCAL where it differs from the peer's, else IFA_ADDRESS.
std::optional<IpAddress> own_address(const nlmsghdr* message) {
  const auto* body = static_cast<const ifaddrmsg*>(NLMSG_DATA(message));
  if (message->nlmsg_len < NLMSG_LENGTH(sizeof *body)) return std::nullopt;
  std::optional<IpAddress> found;
  auto left = static_cast<int>(message->nlmsg_len - NLMSG_LENGTH(sizeof *body));
  for (const rtattr* one = IFA_RTA(body); RTA_OK(one, left); one = RTA_NEXT(one, left)) {
    if (one->rta_type != IFA_LOCAL && (one->rta_type != IFA_ADDRESS || found)) continue;
    const auto* bytes = static_cast<const std::uint8_t*>(RTA_DATA(one));
    if (auto address = IpAddress::from_bytes(ByteView(bytes, RTA_PAYLOAD(one)))) found = address;
  }
  return found;
}

bool reaches_ipv6() {
  constexpr std::uint16_t kAnyPort = 443;
  return start_connect(*packet_address("2001:db8::1"), kAnyPort, SOCK_DGRAM).error == 0;
}

bool same(const HostFacts& a, const HostFacts& b) {
  return a.own_addresses == b.own_addresses && a.has_ipv6 == b.has_ipv6;
}

}  // namespace

Result<std::unique_ptr<HostWatch>> HostWatch::create(EventLoop& loop) {
  DRUPE_ASSIGN(UniqueFd questions, open_netlink(0));
  DRUPE_ASSIGN(UniqueFd events, open_netlink(RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR));
  // The kernel answers within the call that asks; this is for a machine where something else answers.
  const timeval patience{2, 0};
  ::setsockopt(questions.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::unique_ptr<HostWatch> watch(new HostWatch(loop, std::move(questions), std::move(events)));
  DRUPE_ASSIGN(watch->facts_, watch->ask());
  DRUPE_TRY(
      loop.watch(watch->events_.get(), EPOLLIN, [raw = watch.get()](std::uint32_t) { raw->on_event(); }));
  return watch;
}

HostWatch::~HostWatch() {
  loop_.unwatch(events_.get());
  loop_.cancel(timer_);
}

Result<HostFacts> HostWatch::ask() {
  HostFacts facts;
  DRUPE_ASSIGN(facts.own_addresses, dump_addresses());
  std::ranges::sort(facts.own_addresses);
  facts.has_ipv6 = reaches_ipv6();
  return facts;
}

Result<std::vector<IpAddress>> HostWatch::dump_addresses() {
  const auto failed = [](int error) { return fail_sys("Asking for the host's addresses failed", error); };
  alignas(nlmsghdr) std::array<std::uint8_t, kReadSize> buffer;
  for (int tries = 0; tries < kMostTries; ++tries) {
    struct {
      nlmsghdr head;
      ifaddrmsg body;
    } request{};
    request.head.nlmsg_len = sizeof request;
    request.head.nlmsg_type = RTM_GETADDR;
    request.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.head.nlmsg_seq = ++sequence_;
    if (::send(questions_.get(), &request, sizeof request, 0) < 0) return failed(errno);
    std::vector<IpAddress> found;
    bool interrupted = false;
    for (bool done = false; !done;) {
      const ssize_t size = ::recv(questions_.get(), buffer.data(), buffer.size(), 0);
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) return failed(size < 0 ? errno : EPIPE);
      auto left = static_cast<std::uint32_t>(size);
      const auto* message = reinterpret_cast<const nlmsghdr*>(buffer.data());
      for (; NLMSG_OK(message, left); message = NLMSG_NEXT(message, left)) {
        if (message->nlmsg_seq != sequence_) continue;
        if (message->nlmsg_type == NLMSG_ERROR) return failed(EIO);
        if ((message->nlmsg_flags & NLM_F_DUMP_INTR) != 0) interrupted = true;
        if (message->nlmsg_type == NLMSG_DONE) done = true;
        if (message->nlmsg_type != RTM_NEWADDR) continue;
        if (const auto address = own_address(message)) found.push_back(*address);
        if (found.size() > kMaxAddresses) return failed(E2BIG);
      }
    }
    if (!interrupted) return found;
  }
  return failed(EAGAIN);
}

void HostWatch::on_event() {
  std::array<std::uint8_t, kReadSize> ignored;
  // ENOBUFS means that changes were lost, which is one more reason to ask.
  while (::recv(events_.get(), ignored.data(), ignored.size(), MSG_DONTWAIT) > 0) {
  }
  if (timer_ != 0) {
    changed_again_ = true;
    return;
  }
  refresh();
  if (timer_ == 0) settle();
}

void HostWatch::ask_again() {
  pause_ = pause_ == pause_.zero() ? kSettle : std::min(2 * pause_, kLongestPause);
  loop_.cancel(timer_);
  timer_ = loop_.after(pause_, [this] {
    timer_ = 0;
    changed_again_ = false;
    refresh();
  });
}

void HostWatch::settle() {
  timer_ = loop_.after(kSettle, [this] {
    timer_ = 0;
    refresh();
    if (std::exchange(changed_again_, false) && timer_ == 0) settle();
  });
}

void HostWatch::refresh() {
  auto now = ask();
  if (!now) {
    if (pause_ == pause_.zero()) log(LogLevel::kWarning, now.error().message + "; it is tried again");
    return ask_again();
  }
  // Routes follow addresses.
  if (std::exchange(pause_, pause_.zero()) != pause_.zero()) settle();
  if (same(*now, facts_)) return;
  facts_ = *std::move(now);
  if (on_change_) on_change_();
}

}  // namespace drupe::net
