// Over the kernel's own routing netlink, in a network namespace of the test's own.
#include "net/program/host_watch.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace drupe::net {
namespace {

bool own_namespace() {
  const bool root = ::geteuid() == 0;
  if (::unshare(root ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  return std::system("PATH=$PATH:/usr/sbin:/sbin ip link set lo up") == 0;
}

bool add_address(const char* address) {
  const std::string command = std::string("PATH=$PATH:/usr/sbin:/sbin ip addr add ") + address + " dev lo";
  return std::system(command.c_str()) == 0;
}

/// The first netlink socket that the process has opened.
int first_netlink() {
  for (int fd = 3; fd < 1024; ++fd) {
    int family = 0;
    socklen_t size = sizeof family;
    if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family == AF_NETLINK) return fd;
  }
  return -1;
}

bool knows(const HostWatch& watch, const char* address) {
  const auto& own = watch.facts().own_addresses;
  return std::ranges::find(own, *IpAddress::parse(address)) != own.end();
}

TEST(HostWatch, AsksAgainUntilTheKernelAnswers) {
  if (!own_namespace()) GTEST_SKIP() << "no network namespace or no program ip here";
  const auto loop = EventLoop::create().value();
  const auto watch = HostWatch::create(*loop).value();
  ASSERT_TRUE(add_address("192.0.2.1/32"));
  ASSERT_TRUE(
      *loop->run_until([&] { return knows(*watch, "192.0.2.1"); }, Clock::now() + std::chrono::seconds(20)));
  // A socket whose other end is gone, in the place of the one that asks.
  const int questions = first_netlink();
  const UniqueFd kept(::fcntl(questions, F_DUPFD_CLOEXEC, 3));
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd broken(ends[0]);
  ::close(ends[1]);
  ASSERT_GE(::dup3(broken.get(), questions, O_CLOEXEC), 0);
  ASSERT_TRUE(add_address("192.0.2.2/32"));
  // The event has come, was asked about, and a first repetition too.
  static_cast<void>(loop->run_until([] { return false; }, Clock::now() + HostWatch::kSettle * 2));
  EXPECT_FALSE(knows(*watch, "192.0.2.2"));
  EXPECT_TRUE(knows(*watch, "192.0.2.1"));
  ASSERT_GE(::dup3(kept.get(), questions, O_CLOEXEC), 0);
  EXPECT_TRUE(*loop->run_until([&] { return knows(*watch, "192.0.2.2"); },
                               Clock::now() + HostWatch::kLongestPause * 2));
}

}  // namespace
}  // namespace drupe::net
