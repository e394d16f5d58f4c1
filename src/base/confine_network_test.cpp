// What a process can still do under Confinement::only_network.
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <memory>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <gtest/gtest.h>
#include <netinet/in.h>

#include "base/confine.h"
#include "base/unique_fd.h"

namespace drupe {
namespace {

constexpr const char* kListener = "drupe-confine-network-test";

struct Step {
  const char* what;
  bool allowed;
  std::function<bool()> works;
};

bool can_open(int family, int type, int protocol) {
  return UniqueFd(::socket(family, type | SOCK_CLOEXEC, protocol)).valid();
}

sockaddr_in nowhere() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(9);
  return address;
}

bool can_map(int protection) {
  void* page = ::mmap(nullptr, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return page != MAP_FAILED && ::munmap(page, 4096) == 0;
}

bool can_make_executable() {
  void* page = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return ::mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0;
}

bool can_connect(int type) {
  const UniqueFd fd(::socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_in to = nowhere();
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 ||
         errno == EINPROGRESS || errno == ECONNREFUSED;
}

bool can_connect_a_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return true;
  const UniqueFd one(ends[0]);
  UniqueFd other(ends[1]);
  // A listener that exists and could be reached.
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  const std::string name = std::string(1, '\0') + kListener;
  name.copy(to.sun_path, sizeof to.sun_path);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  const auto* address = reinterpret_cast<const sockaddr*>(&to);
  if (::connect(one.get(), address, size) == 0) return true;
  other.reset();
  return ::connect(one.get(), address, size) == 0;
}

bool can_bind() {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at = nowhere();
  at.sin_port = 0;
  return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
}

bool can_send_to_an_address() {
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_in to = nowhere();
  return ::sendto(fd.get(), "x", 1, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 1;
}

bool can_start_a_process() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  return pid > 0;
}

std::vector<Step> steps(int epoll) {
  return {
      {"IPv4 stream", true, [] { return can_open(AF_INET, SOCK_STREAM, 0); }},
      {"IPv6 datagram", true, [] { return can_open(AF_INET6, SOCK_DGRAM, 0) || errno == EAFNOSUPPORT; }},
      {"connect TCP", true, [] { return can_connect(SOCK_STREAM); }},
      {"connect UDP", true, [] { return can_connect(SOCK_DGRAM); }},
      {"epoll", true,
       [epoll] {
         epoll_event event{};
         return ::epoll_wait(epoll, &event, 1, 0) == 0;
       }},
      {"memory", true, [] { return can_map(PROT_READ | PROT_WRITE) && std::make_unique<char[]>(1 << 22); }},
      {"random numbers", true,
       [] {
         int value = 0;
         return ::getrandom(&value, sizeof value, 0) == sizeof value;
       }},
      {"unix socket", false, [] { return can_open(AF_UNIX, SOCK_STREAM, 0); }},
      {"unix pair", false,
       [] {
         int ends[2];
         return ::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) == 0;
       }},
      {"unix stream pair", true,
       [] {
         int ends[2];
         return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0;
       }},
      {"connect an end of a pair elsewhere", false, can_connect_a_pair},
      {"copy of a descriptor", true,
       [epoll] {
         return UniqueFd(::fcntl(epoll, F_DUPFD_CLOEXEC, 0)).valid() && ::fcntl(epoll, F_GETFL) >= 0;
       }},
      {"owner of a descriptor's signals", false,
       [epoll] { return ::fcntl(epoll, F_SETOWN, 1) == 0 || ::fcntl(epoll, F_SETSIG, SIGKILL) == 0; }},
      {"flags of a descriptor", false, [epoll] { return ::fcntl(epoll, F_SETFL, O_ASYNC) == 0; }},
      {"netlink", false, [] { return can_open(AF_NETLINK, SOCK_RAW, 0); }},
      {"raw socket", false, [] { return can_open(AF_INET, SOCK_RAW, IPPROTO_ICMP); }},
      {"MPTCP", false, [] { return can_open(AF_INET, SOCK_STREAM, 262); }},
      {"vsock", false, [] { return can_open(40, SOCK_STREAM, 0); }},
      {"bind", false, can_bind},
      {"datagram to an address", false, can_send_to_an_address},
      {"open", false, [] { return ::open("/", O_PATH | O_CLOEXEC) >= 0; }},
      {"executable memory", false, [] { return can_map(PROT_READ | PROT_EXEC); }},
      {"memory made executable", false, can_make_executable},
      {"process", false, can_start_a_process},
      {"signal", false, [] { return ::kill(::getppid(), 0) == 0; }},
      {"trace", false, [] { return ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0; }},
  };
}

TEST(ConfineNetwork, CarriesBytesAndNothingElse) {
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  const std::string name = std::string(1, '\0') + kListener;
  name.copy(at.sun_path, sizeof at.sun_path);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
            0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
    const auto all = steps(epoll.get());
    Confinement confinement;
    confinement.only_network = true;
    if (!confine_self(confinement)) ::_exit(100);
    int number = 1;
    for (const Step& step : all) {
      if (step.works() != step.allowed) ::_exit(number);
      ++number;
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  const int number = WEXITSTATUS(status);
  const auto all = steps(-1);
  EXPECT_EQ(number, 0) << (number <= static_cast<int>(all.size())
                               ? all[static_cast<std::size_t>(number) - 1].what
                               : "confine_self()");
}

}  // namespace
}  // namespace drupe
