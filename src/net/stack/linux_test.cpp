// The TCP side against Linux's own, over links that lose, double and reorder frames.
#include <cerrno>
#include <cstring>
#include <map>

#include <poll.h>
#include <sys/socket.h>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>

#include "net/stack/testing/fake_guest.h"
#include "net/stack/testing/linux_guest.h"

namespace drupe::net {
namespace {

using testing::BadLink;
using testing::LinuxGuest;
using namespace std::chrono_literals;

constexpr std::uint16_t kEcho = 7, kReset = 11, kSilent = 12, kRefuse = 13, kNoHost = 14;

// Services by port of the other side; runs on the stack's thread.
class Services final : public TcpHandler, public UdpHandler {
 public:
  Stack* stack = nullptr;
  std::atomic<int> closed[4] = {};
  std::atomic<int> established = 0;
  std::string sent_by_guest;  // on flows that open() made

  void on_connect(FlowId flow, const FlowKey& key) override {
    switch (key.remote_port) {
      case kRefuse:
        return stack->tcp().refuse(flow);
      case kNoHost:
        return stack->tcp().unreachable(flow, Unreachable::kHost);
      default:
        return stack->tcp().accept(flow);
    }
  }
  void on_established(FlowId) override { ++established; }
  std::size_t on_data(FlowId flow, ByteView bytes) override {
    if (stack->tcp().key(flow)->remote_port == kSilent) return 0;
    return copy(flow, bytes);
  }
  void on_readable(FlowId flow) override {
    const FlowKey* key = stack->tcp().key(flow);
    if (key->remote_port == kReset) return stack->tcp().abort(flow);
    if (key->remote_port != kSilent) echo(flow);
  }
  void on_eof(FlowId flow) override { stack->tcp().shutdown_write(flow); }
  void on_writable(FlowId flow) override { echo(flow); }
  void on_closed(FlowId, CloseReason reason) override { ++closed[static_cast<int>(reason)]; }
  void on_datagram(FlowId flow, const FlowKey& key, ByteView payload, bool) override {
    if (key.remote_port == kRefuse)
      stack->udp().unreachable(flow, Unreachable::kPort);
    else
      stack->udp().send(flow, payload);
  }
  void on_expired(FlowId) override {}

 private:
  std::size_t copy(FlowId flow, ByteView bytes) {
    std::size_t taken = 0;
    for (const auto piece : stack->tcp().write_room(flow)) {
      const std::size_t part = std::min(piece.size(), bytes.size() - taken);
      if (part == 0) break;
      std::memcpy(piece.data(), bytes.data() + taken, part);
      taken += part;
    }
    stack->tcp().commit(flow, taken);
    // Asks to be told of room.
    if (taken < bytes.size()) (void)stack->tcp().write_room(flow);
    return taken;
  }
  void echo(FlowId flow) {
    for (const auto piece : stack->tcp().readable(flow)) {
      const std::size_t taken = copy(flow, piece);
      stack->tcp().consume(flow, taken);
      if (taken < piece.size()) return;
    }
  }
};

int tap() {
  static const Result<UniqueFd> device = testing::enter_guest_namespace();
  static bool told = false;
  if (!device && !told) {
    std::printf("SKIP: no guest of Linux's own here: %s\n", device.error().message.c_str());
    told = true;
  }
  return device ? device->get() : -1;
}

struct Shape {
  std::size_t mtu;
  BadLink link;
  bool v6;
  std::size_t bytes;
};

class Linux : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    if (tap() < 0) GTEST_SKIP() << "no tap device in a namespace of its own";
    start({1500, {}, false, 0});
  }
  void start(const Shape& shape) {
    guest.reset();
    ASSERT_TRUE(testing::set_guest_mtu(shape.mtu).has_value());
    services = std::make_unique<Services>();
    guest = std::make_unique<LinuxGuest>(tap(), shape.mtu, shape.link, *services, *services);
    guest->run([&](Stack& stack) { services->stack = &stack; });
  }
  static sockaddr_storage address(bool v6, std::uint16_t port) {
    sockaddr_storage storage{};
    if (v6) {
      auto* to = reinterpret_cast<sockaddr_in6*>(&storage);
      to->sin6_family = AF_INET6;
      to->sin6_port = htons(port);
      std::memcpy(&to->sin6_addr, testing::kWorld6.bytes.data(), 16);
    } else {
      auto* to = reinterpret_cast<sockaddr_in*>(&storage);
      to->sin_family = AF_INET;
      to->sin_port = htons(port);
      std::memcpy(&to->sin_addr, testing::kWorld4.bytes.data(), 4);
    }
    return storage;
  }
  // errno, or 0.
  static int connect_to(UniqueFd& socket, std::uint16_t port, bool v6 = false, int type = SOCK_STREAM) {
    const auto to = address(v6, port);
    for (int tries = 0;; ++tries) {
      socket = UniqueFd(::socket(v6 ? AF_INET6 : AF_INET, type | SOCK_CLOEXEC, 0));
      const timeval patience{20, 0};
      ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
      // Bound, or Linux would take its link-local address while this one is tentative, which it is for a
      // second where duplicate address detection cannot be turned off; and the stack answers no stranger.
      sockaddr_in6 own{};
      own.sin6_family = AF_INET6;
      std::memcpy(&own.sin6_addr, testing::kGuest6.bytes.data(), 16);
      const bool bound =
          !v6 || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)) == 0;
      if (bound && ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to),
                             v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)) == 0)
        return 0;
      if (errno != EADDRNOTAVAIL || tries > 50) return errno;
      ::poll(nullptr, 0, 100);
    }
  }
  // Sends `bytes` and reads as many, both at once; true when they came back as they were.
  static bool round_trip(int socket, std::size_t bytes) {
    const auto pattern = [](std::size_t at) { return static_cast<char>((at * 2654435761U) >> 13); };
    std::thread writer([&] {
      std::string piece;
      for (std::size_t at = 0; at < bytes;) {
        piece.resize(std::min<std::size_t>(100'000, bytes - at));
        for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = pattern(at + i);
        for (std::size_t done = 0; done < piece.size();) {
          const ssize_t count = ::send(socket, piece.data() + done, piece.size() - done, MSG_NOSIGNAL);
          if (count <= 0) return;
          done += static_cast<std::size_t>(count);
        }
        at += piece.size();
      }
      ::shutdown(socket, SHUT_WR);
    });
    std::size_t at = 0;
    bool right = true;
    std::string piece(100'000, '\0');
    for (;;) {
      const ssize_t count = ::recv(socket, piece.data(), piece.size(), 0);
      if (count <= 0) {
        right = right && count == 0;
        break;
      }
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
        right = right && piece[i] == pattern(at + i);
      at += static_cast<std::size_t>(count);
    }
    writer.join();
    return right && at == bytes;
  }
  bool eventually(const std::function<bool()>& done) {
    for (int i = 0; i < 500; ++i) {
      if (done()) return true;
      ::poll(nullptr, 0, 10);
    }
    return done();
  }

  std::unique_ptr<Services> services;
  std::unique_ptr<LinuxGuest> guest;
};

TEST_P(Linux, CarriesBytesBothWaysAndHalfCloses) {
  const Shape shape = GetParam();
  start(shape);
  UniqueFd socket;
  ASSERT_EQ(connect_to(socket, kEcho, shape.v6), 0);
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_TRUE(round_trip(socket.get(), shape.bytes));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  socket.reset();
  EXPECT_TRUE(eventually([&] { return services->closed[0] == 1; }));
  guest->run([&](Stack& stack) {
    const auto& counters = stack.counters();
    std::printf("mtu %zu, loss %u/1000: %.0f MiB/s each way, %lu frames in, %lu out, %lu retransmitted\n",
                shape.mtu, shape.link.drop, static_cast<double>(shape.bytes) / 1048576 / took.count(),
                counters.frames_in, counters.frames_out, counters.tcp_retransmits);
    EXPECT_EQ(counters.count(DropReason::kBadChecksum), 0U);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Links, Linux,
    ::testing::Values(Shape{1500, {}, false, 32 << 20}, Shape{65520, {}, false, 64 << 20},
                      Shape{65520, {}, true, 64 << 20}, Shape{1500, {}, true, 16 << 20},
                      Shape{1500, {0, 20, 50}, false, 4 << 20}, Shape{1500, {10, 10, 20}, false, 2 << 20},
                      Shape{9000, {30, 30, 30}, true, 2 << 20}, Shape{65520, {20, 20, 50}, false, 4 << 20}));

using LinuxEnds = Linux;

TEST_F(LinuxEnds, RefusalsAreFast) {
  for (const bool v6 : {false, true}) {
    UniqueFd warm, socket;
    EXPECT_EQ(connect_to(warm, kEcho, v6), 0);
    // The best of some: others use this machine as well.
    auto best = std::chrono::steady_clock::duration::max();
    for (int i = 0; i < 5; ++i) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(connect_to(socket, kRefuse, v6), ECONNREFUSED);
      EXPECT_EQ(connect_to(socket, kNoHost, v6), EHOSTUNREACH);
      best = std::min(best, std::chrono::steady_clock::now() - start);
    }
    EXPECT_LT(best, 100ms);
  }
}

TEST_F(LinuxEnds, ResetOfTheWorldReachesTheGuest) {
  UniqueFd socket;
  ASSERT_EQ(connect_to(socket, kReset), 0);
  char byte = 0;
  ASSERT_EQ(::send(socket.get(), &byte, 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(::recv(socket.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST_F(LinuxEnds, ResetOfTheGuestReachesTheWorld) {
  UniqueFd socket;
  ASSERT_EQ(connect_to(socket, kEcho), 0);
  const linger now{1, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  socket.reset();
  EXPECT_TRUE(eventually([&] { return services->closed[static_cast<int>(CloseReason::kReset)] == 1; }));
}

TEST_F(LinuxEnds, AWorldThatDoesNotReadStopsTheGuest) {
  UniqueFd socket;
  ASSERT_EQ(connect_to(socket, kSilent), 0);
  const int small = 64 * 1024;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
  const std::string piece(64 * 1024, 'x');
  std::size_t sent = 0;
  for (int quiet = 0; quiet < 3;) {
    const ssize_t count = ::send(socket.get(), piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    quiet = count > 0 ? 0 : quiet + 1;
    if (count > 0) sent += static_cast<std::size_t>(count);
    if (count < 0) ::poll(nullptr, 0, 30);
    ASSERT_LT(sent, std::size_t{4} << 20);
  }
  // Then it reads, and everything is there.
  std::size_t read = 0;
  EXPECT_TRUE(eventually([&] {
    guest->run([&](Stack& stack) {
      const FlowTable flows = stack.tcp().flows();
      ASSERT_EQ(flows.size(), 1U);
      const FlowId flow{0, 1};
      const std::size_t count = size_of(stack.tcp().readable(flow));
      stack.tcp().consume(flow, count);
      read += count;
    });
    return read == sent;
  }));
}

TEST_F(LinuxEnds, AGuestThatDoesNotReadStopsTheWorldAndGoesOn) {
  UniqueFd socket;
  ASSERT_EQ(connect_to(socket, kEcho), 0);
  const int small = 16 * 1024;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
  const std::string piece(64 * 1024, 'x');
  std::size_t sent = 0;
  for (int quiet = 0; quiet < 5;) {
    const ssize_t count = ::send(socket.get(), piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    quiet = count > 0 ? 0 : quiet + 1;
    if (count > 0) sent += static_cast<std::size_t>(count);
    if (count < 0) ::poll(nullptr, 0, 100);
  }
  ::shutdown(socket.get(), SHUT_WR);
  std::size_t read = 0;
  std::string got(100'000, '\0');
  for (ssize_t count = 0; (count = ::recv(socket.get(), got.data(), got.size(), 0)) > 0;)
    read += static_cast<std::size_t>(count);
  EXPECT_EQ(read, sent);
}

TEST_F(LinuxEnds, OpensToAPortOfTheGuest) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(8080);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0);
  ASSERT_EQ(::listen(listener.get(), 5), 0);
  guest->run([&](Stack& stack) {
    EXPECT_TRUE(stack.tcp().open({testing::kGuest4, testing::kGateway4, 8080, 0}).has_value());
    EXPECT_TRUE(stack.tcp().open({testing::kGuest4, testing::kGateway4, 8081, 0}).has_value());
  });
  const UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(socket.valid());
  EXPECT_TRUE(eventually([&] { return services->closed[static_cast<int>(CloseReason::kRefused)] == 1; }));
  EXPECT_EQ(services->established, 1);
  EXPECT_TRUE(round_trip(socket.get(), 1 << 20));
}

// A forked guest: its connections belong to a stack that is gone.
TEST_F(LinuxEnds, ConnectionsOfAnEarlierLifeAreReset) {
  for (const int skew : {0, 100, -100}) {
    start({1500, {}, false, 0});
    std::vector<UniqueFd> sockets(20);
    for (auto& socket : sockets) ASSERT_EQ(connect_to(socket, kEcho), 0);
    ASSERT_EQ(::send(sockets[0].get(), "hello", 5, 0), 5);
    char bytes[8];
    ASSERT_EQ(::recv(sockets[0].get(), bytes, sizeof(bytes), 0), 5);
    std::string table;
    guest->run([&](Stack& stack) { table = encode_flow_table(stack.tcp().flows()); });
    FlowTable flows = *decode_flow_table(as_bytes(table));
    ASSERT_EQ(flows.size(), sockets.size());
    // As if bytes were on their way at that moment, or acknowledgements.
    for (auto& flow : flows) (skew > 0 ? flow.send_max : flow.send_una) += static_cast<std::uint32_t>(skew);
    if (skew > 0)
      for (auto& flow : flows) flow.send_una += 50;  // neither number is the one that the guest expects
    start({1500, {}, false, 0});
    guest->run([&](Stack& stack) { stack.tcp().reset_all(flows); });
    for (auto& socket : sockets) {
      const auto begun = std::chrono::steady_clock::now();
      EXPECT_EQ(::recv(socket.get(), bytes, sizeof(bytes), 0), -1);
      EXPECT_EQ(errno, ECONNRESET);
      EXPECT_LT(std::chrono::steady_clock::now() - begun, 2s);
    }
  }
}

TEST_F(LinuxEnds, ManyConnectionsAtOnceComeAndGo) {
  for (int round = 0; round < 3; ++round) {
    std::vector<UniqueFd> sockets(300);
    for (auto& socket : sockets) ASSERT_EQ(connect_to(socket, kEcho), 0);
    for (auto& socket : sockets) ASSERT_EQ(::send(socket.get(), "x", 1, MSG_NOSIGNAL), 1);
    char byte = 0;
    for (auto& socket : sockets) ASSERT_EQ(::recv(socket.get(), &byte, 1, 0), 1);
  }
  EXPECT_TRUE(eventually([&] { return services->closed[0] == 900; }));
  EXPECT_TRUE(eventually([&] {
    std::size_t left = 1;
    guest->run([&](Stack& stack) { left = stack.tcp().size(); });
    return left == 0;
  }));
}

TEST_F(LinuxEnds, Datagrams) {
  for (const bool v6 : {false, true}) {
    UniqueFd socket;
    ASSERT_EQ(connect_to(socket, kEcho, v6, SOCK_DGRAM), 0);
    ASSERT_EQ(::send(socket.get(), "hello", 5, 0), 5);
    char bytes[8];
    EXPECT_EQ(::recv(socket.get(), bytes, sizeof(bytes), 0), 5);
    ASSERT_EQ(connect_to(socket, kRefuse, v6, SOCK_DGRAM), 0);
    ASSERT_EQ(::send(socket.get(), "hello", 5, 0), 5);
    EXPECT_EQ(::recv(socket.get(), bytes, sizeof(bytes), 0), -1);
    EXPECT_EQ(errno, ECONNREFUSED);
  }
}

}  // namespace
}  // namespace drupe::net
