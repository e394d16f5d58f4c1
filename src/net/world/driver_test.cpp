// The whole plane over a real link and real sockets on the loopback device. A second stack plays the guest.
#include "net/world/driver.h"

#include <cerrno>
#include <cstring>
#include <thread>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "net/stack/testing/fake_guest.h"

namespace drupe::net {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

const PacketAddress kLoopback = PacketAddress::v4(127, 0, 0, 1);

// Lets everything through to one port of this machine, unless a test says otherwise.
class TestGate final : public Gate, public UdpGate {
 public:
  std::function<ConnectVerdict()> verdict;
  HostTcp* tcp = nullptr;
  FlowId last;
  std::vector<FlowReport> gone;
  std::vector<UniqueFd> refused;
  std::uint16_t udp_port = 0;
  PacketAddress udp_address = kLoopback;
  int udp_begun = 0, udp_gone = 0;
  UdpVerdict::Action udp_action = UdpVerdict::Action::kConnect;
  Stack* stack = nullptr;

  void on_connect(FlowId flow, const FlowKey&) override {
    last = flow;
    tcp->decide(flow, verdict());
  }
  void on_gone(FlowId, const FlowReport& report) override { gone.push_back(report); }
  void on_guest_refused(FlowId, CloseReason, UniqueFd socket) override {
    refused.push_back(std::move(socket));
  }
  UdpVerdict on_flow(FlowId, const FlowKey&, ByteView) override {
    ++udp_begun;
    return {udp_action, Unreachable::kPort, udp_address, udp_port};
  }
  void on_local(FlowId flow, const FlowKey&, ByteView payload) override { stack->udp().send(flow, payload); }
  void on_udp_gone(FlowId, std::uint64_t, std::uint64_t) override { ++udp_gone; }
};

// The guest: a stack with the addresses the other way round.
class Guest final : public TcpHandler, public UdpHandler {
 public:
  Guest(EventLoop& loop, UniqueFd link, std::size_t mtu)
      : loop_(loop),
        link_(*Link::adopt(std::move(link), mtu)),
        stack_(config(mtu), link_, time_, *this, *this) {
    stack_.on_work([this] { loop_.defer([this] { flush(); }); });
    EXPECT_TRUE(loop_.watch(link_.fd(), EPOLLIN, [this](std::uint32_t ready) {
      while (*link_.receive([this](ByteView frame) { stack_.input(frame); }) > 0) {
        if (!stack_.flush()) break;
      }
      if ((ready & EPOLLOUT) != 0) stack_.writable();
      flush();
    }));
  }
  ~Guest() override { loop_.unwatch(link_.fd()); }
  static StackConfig config(std::size_t mtu) {
    StackConfig config = testing::test_config();
    std::swap(config.guest_mac, config.gateway_mac);
    config.guest_v4 = testing::kWorld4;
    config.gateway_v4 = testing::kGuest4;
    config.mtu = mtu;
    return config;
  }
  void flush() {
    const bool ready = stack_.flush();
    (void)loop_.modify(link_.fd(), ready ? EPOLLIN : EPOLLIN | EPOLLOUT);
    if (stack_.next_deadline() != TimePoint::max() && !armed_) {
      armed_ = true;
      loop_.after(20ms, [this] {
        armed_ = false;
        stack_.advance();
        flush();
      });
    }
  }
  FlowId connect(std::uint16_t port = 443) {
    return *stack_.tcp().open({testing::kWorld4, testing::kGuest4, port, 0});
  }
  void send(FlowId flow, std::string_view bytes) {
    for (auto piece : stack_.tcp().write_room(flow)) {
      const std::size_t part = std::min(piece.size(), bytes.size());
      std::memcpy(piece.data(), bytes.data(), part);
      stack_.tcp().commit(flow, part);
      bytes = bytes.substr(part);
      if (bytes.empty()) break;
    }
  }
  // Keeps `total` bytes flowing out.
  void pour(FlowId flow) {
    while (left_to_pour > 0) {
      const auto room = stack_.tcp().write_room(flow);
      if (room[0].empty()) return;
      const std::size_t part = std::min(room[0].size(), left_to_pour);
      std::memset(room[0].data(), 'p', part);
      stack_.tcp().commit(flow, part);
      left_to_pour -= part;
    }
    stack_.tcp().shutdown_write(flow);
  }

  void on_connect(FlowId flow, const FlowKey& key) override {
    if (key.remote_port == 8080)
      stack_.tcp().accept(flow);
    else
      stack_.tcp().refuse(flow);
  }
  void on_established(FlowId) override { events.emplace_back("established"); }
  std::size_t on_data(FlowId, ByteView bytes) override {
    if (!reading) return 0;
    received_bytes += bytes.size();
    if (received.size() < 1000) received.append(as_text(bytes));
    return bytes.size();
  }
  void on_readable(FlowId flow) override {
    if (!reading) return;
    const auto view = stack_.tcp().readable(flow);
    for (const auto piece : view) {
      received_bytes += piece.size();
      if (received.size() < 1000) received.append(as_text(piece));
    }
    stack_.tcp().consume(flow, size_of(view));
  }
  void on_eof(FlowId) override { events.emplace_back("eof"); }
  void on_writable(FlowId flow) override {
    if (left_to_pour > 0) pour(flow);
  }
  void on_closed(FlowId, CloseReason reason) override {
    events.push_back("closed " + std::to_string(static_cast<int>(reason)));
  }
  void on_datagram(FlowId, const FlowKey&, ByteView payload, bool) override {
    received.append(as_text(payload));
  }
  void on_expired(FlowId) override {}

  Stack& stack() { return stack_; }
  std::vector<std::string> events;
  std::string received;
  std::size_t received_bytes = 0, left_to_pour = 0;
  bool reading = true;

 private:
  EventLoop& loop_;
  Link link_;
  SteadyTime time_;
  Stack stack_;
  bool armed_ = false;
};

class DriverTest : public ::testing::Test {
 protected:
  void SetUp() override { start(1500); }
  void start(std::size_t mtu) {
    driver.reset();
    guest.reset();
    loop = *EventLoop::create();
    gate = std::make_unique<TestGate>();
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
    StackConfig config = testing::test_config();
    config.mtu = mtu;
    driver = *Driver::create(*loop, UniqueFd(ends[0]), config, *gate, *gate);
    guest = std::make_unique<Guest>(*loop, UniqueFd(ends[1]), mtu);
    gate->tcp = &driver->tcp();
    gate->stack = &driver->stack();
    listen();
  }
  void TearDown() override {
    driver.reset();
    guest.reset();
  }
  void listen() {
    listener = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(::listen(listener.get(), 64), 0);
    socklen_t size = sizeof(address);
    ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = ntohs(address.sin_port);
    gate->verdict = [this] { return to_listener(); };
  }
  ConnectVerdict to_listener() const {
    ConnectVerdict made;
    made.action = ConnectVerdict::Action::kConnect;
    made.address = kLoopback;
    made.port = port;
    return made;
  }
  bool until(const std::function<bool()>& done) { return *loop->run_until(done, Clock::now() + 20s); }
  UniqueFd accept() {
    UniqueFd socket;
    until([&] {
      socket = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      return socket.valid();
    });
    return socket;
  }
  bool saw(std::string_view event) { return std::ranges::count(guest->events, event) > 0; }
  // Everything the world's end has got so far.
  std::string read(const UniqueFd& socket) {
    std::string bytes(100'000, '\0');
    const ssize_t count = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return bytes;
  }

  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<TestGate> gate;
  std::unique_ptr<Driver> driver;
  std::unique_ptr<Guest> guest;
  UniqueFd listener;
  std::uint16_t port = 0;
};

TEST_F(DriverTest, CarriesBothWaysAndEndsInOrder) {
  const FlowId flow = guest->connect();
  const UniqueFd world = accept();
  ASSERT_TRUE(until([&] { return saw("established"); }));
  guest->send(flow, "hello");
  std::string got;
  ASSERT_TRUE(until([&] { return (got += read(world)) == "hello"; }));
  ASSERT_EQ(::send(world.get(), "world", 5, MSG_NOSIGNAL), 5);
  ASSERT_TRUE(until([&] { return guest->received == "world"; }));
  guest->stack().tcp().shutdown_write(flow);
  char byte = 0;
  ASSERT_TRUE(until([&] { return ::recv(world.get(), &byte, 1, MSG_DONTWAIT) == 0; }));
  ASSERT_EQ(::send(world.get(), "!", 1, MSG_NOSIGNAL), 1);  // the other direction lives
  ASSERT_TRUE(until([&] { return guest->received == "world!"; }));
  ::shutdown(world.get(), SHUT_WR);
  ASSERT_TRUE(until([&] { return saw("closed 0") && gate->gone.size() == 1; }));
  EXPECT_EQ(gate->gone[0].end, FlowEnd::kDone);
  EXPECT_EQ(gate->gone[0].to_world, 5U);
  EXPECT_EQ(gate->gone[0].to_guest, 6U);
  EXPECT_EQ(driver->tcp().size(), 0U);
}

TEST_F(DriverTest, RefusedByTheWorldIsRefusedForTheGuest) {
  listener.reset();
  auto best = Clock::duration::max();  // others use this machine as well
  for (std::size_t i = 1; i <= 5; ++i) {
    const auto begun = Clock::now();
    guest->connect();
    ASSERT_TRUE(until([&] { return gate->gone.size() == i && saw("closed 3"); }));
    guest->events.clear();
    best = std::min(best, Clock::now() - begun);
  }
  EXPECT_LT(best, 100ms);
  EXPECT_EQ(gate->gone.at(0).end, FlowEnd::kConnectFailed);
  EXPECT_EQ(gate->gone.at(0).sys_errno, ECONNREFUSED);
}

TEST_F(DriverTest, RefusedByVerdict) {
  gate->verdict = [] { return ConnectVerdict{}; };
  guest->connect();
  ASSERT_TRUE(until([&] { return saw("closed 3"); }));
  EXPECT_EQ(gate->gone.at(0).end, FlowEnd::kRefused);
}

TEST_F(DriverTest, ResetsCrossInBothDirections) {
  guest->connect();
  UniqueFd world = accept();
  ASSERT_TRUE(until([&] { return saw("established"); }));
  const linger now{1, 0};
  ::setsockopt(world.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  world.reset();
  ASSERT_TRUE(until([&] { return saw("closed 1"); }));
  EXPECT_EQ(gate->gone.at(0).end, FlowEnd::kWorldReset);

  const FlowId flow = guest->connect();
  world = accept();
  ASSERT_TRUE(until([&] { return std::ranges::count(guest->events, "established") == 2; }));
  guest->stack().tcp().abort(flow);
  char byte = 0;
  ASSERT_TRUE(until([&] { return ::recv(world.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == ECONNRESET; }));
  EXPECT_EQ(gate->gone.at(1).end, FlowEnd::kGuestReset);
}

TEST_F(DriverTest, AGuestThatDoesNotReadStopsTheWorld) {
  guest->reading = false;
  const FlowId flow = guest->connect();
  const UniqueFd world = accept();
  ASSERT_TRUE(until([&] { return saw("established"); }));
  const std::string piece(100'000, 'x');
  std::size_t sent = 0;
  auto quiet_since = Clock::now();
  until([&] {
    const ssize_t count = ::send(world.get(), piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) {
      sent += static_cast<std::size_t>(count);
      quiet_since = Clock::now();
    }
    loop->after(5ms, [] {});
    return Clock::now() - quiet_since > 300ms;
  });
  EXPECT_LT(sent, std::size_t{16} << 20);
  ::shutdown(world.get(), SHUT_WR);
  guest->reading = true;
  guest->on_readable(flow);
  ASSERT_TRUE(until([&] { return saw("eof"); }));
  EXPECT_EQ(guest->received_bytes, sent);
}

// Passes whole lines only, and refuses the word "evil".
class Lines final : public Inspector {
 public:
  Verdict look(ByteView pending, bool) override {
    const std::string_view text = as_text(pending);
    const std::size_t end = text.rfind('\n');
    const std::size_t pass = end == std::string_view::npos ? 0 : end + 1;
    if (text.substr(0, pass).find("evil") != std::string_view::npos) return {.refuse = true};
    return {.pass = pass};
  }
};

TEST_F(DriverTest, HeldBytesGoWhenTheInspectorPassesThem) {
  for (const bool inspect_first : {false, true}) {
    SCOPED_TRACE(inspect_first);
    start(1500);
    gate->verdict = [&] {
      auto made = to_listener();
      made.inspector = std::make_unique<Lines>();
      made.inspect_first = inspect_first;
      return made;
    };
    const FlowId flow = guest->connect();
    UniqueFd world;
    if (!inspect_first) {
      world = accept();
      ASSERT_EQ(::send(world.get(), "banner", 6, MSG_NOSIGNAL), 6);
    }
    ASSERT_TRUE(until([&] { return saw("established"); }));
    for (const char byte : std::string_view("first lin")) guest->send(flow, {&byte, 1});
    auto wait = Clock::now() + 50ms;
    (void)loop->run_until([&] { return Clock::now() > wait; }, wait + 1ms);
    if (inspect_first) {
      EXPECT_LT(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC), 0);
    } else {
      EXPECT_EQ(read(world), "");
      EXPECT_EQ(guest->received, "");  // what the world says is held as well
    }
    guest->send(flow, "e\nrest");
    if (inspect_first) world = accept();
    std::string got;
    ASSERT_TRUE(until([&] { return (got += read(world)) == "first line\n"; }));
    if (!inspect_first) {
      ASSERT_TRUE(until([&] { return guest->received == "banner"; }));
    }
    guest->send(flow, " and evil\n");
    ASSERT_TRUE(until([&] { return saw("closed 1"); }));
    EXPECT_EQ(gate->gone.at(0).end, FlowEnd::kRefused);
    EXPECT_EQ(read(world), "");
  }
}

TEST_F(DriverTest, AnInspectorThatNeverPassesEndsTheConnection) {
  gate->verdict = [&] {
    auto made = to_listener();
    made.inspector = std::make_unique<Lines>();
    return made;
  };
  FlowId flow = guest->connect();
  UniqueFd world = accept();
  guest->left_to_pour = 1 << 20;
  ASSERT_TRUE(until([&] { return saw("established"); }));
  guest->pour(flow);
  ASSERT_TRUE(until([&] { return saw("closed 1"); }));
  EXPECT_EQ(read(world), "");
  // An incomplete line at the end.
  flow = guest->connect();
  world = accept();
  ASSERT_TRUE(until([&] { return std::ranges::count(guest->events, "established") == 2; }));
  guest->send(flow, "half a line");
  guest->stack().tcp().shutdown_write(flow);
  ASSERT_TRUE(until([&] { return gate->gone.size() == 2; }));
  EXPECT_EQ(gate->gone[1].end, FlowEnd::kRefused);
  EXPECT_EQ(read(world), "");
}

TEST_F(DriverTest, PublishedPorts) {
  int ends[2];
  for (const std::uint16_t guest_port : {std::uint16_t{8080}, std::uint16_t{8081}}) {
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    const UniqueFd client(ends[1]);
    // For the stack that plays the guest, the port of the guest is the remote one.
    ASSERT_TRUE(driver->tcp()
                    .connect_guest({testing::kGuest4, testing::kWorld4, guest_port, 0}, UniqueFd(ends[0]))
                    .has_value());
    if (guest_port == 8080) {
      ASSERT_EQ(::send(client.get(), "GET", 3, MSG_NOSIGNAL), 3);
      ASSERT_TRUE(until([&] { return guest->received == "GET"; }));
    } else {
      ASSERT_TRUE(until([&] { return gate->refused.size() == 1; }));
      EXPECT_EQ(::send(gate->refused[0].get(), "x", 1, MSG_NOSIGNAL), 1);  // the socket lives
    }
  }
}

TEST_F(DriverTest, ResetAtOnceByRule) {
  guest->connect();
  const UniqueFd world = accept();
  ASSERT_TRUE(until([&] { return saw("established"); }));
  driver->tcp().refuse(gate->last);
  ASSERT_TRUE(until([&] { return saw("closed 1"); }));
  char byte = 0;
  EXPECT_TRUE(::recv(world.get(), &byte, 1, 0) < 0 && errno == ECONNRESET);
}

TEST_F(DriverTest, Datagrams) {
  const UniqueFd server(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::getsockname(server.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  gate->udp_port = ntohs(address.sin_port);
  const FlowId flow = *guest->stack().udp().open({testing::kWorld4, testing::kGuest4, 53, 5000});
  ASSERT_TRUE(guest->stack().udp().send(flow, as_bytes("question")));
  char bytes[100];
  ssize_t count = 0;
  ASSERT_TRUE(until([&] {
    return (count = ::recvfrom(server.get(), bytes, sizeof(bytes), 0, reinterpret_cast<sockaddr*>(&address),
                               &size)) > 0;
  }));
  EXPECT_EQ(count, 8);
  ASSERT_EQ(::sendto(server.get(), "answer", 6, 0, reinterpret_cast<sockaddr*>(&address), size), 6);
  ASSERT_TRUE(until([&] { return guest->received == "answer"; }));

  gate->udp_action = UdpVerdict::Action::kLocal;
  const FlowId local = *guest->stack().udp().open({testing::kWorld4, testing::kGuest4, 53, 5001});
  ASSERT_TRUE(guest->stack().udp().send(local, as_bytes("echo")));
  ASSERT_TRUE(until([&] { return guest->received == "answerecho"; }));
}

// A gate keeps something for each flow that it lets begin: it must hear of the end of one that never was.
TEST_F(DriverTest, AFlowThatCannotBeConnectedIsToldAsGone) {
  gate->udp_address = PacketAddress::v4(255, 255, 255, 255);  // not without SO_BROADCAST
  gate->udp_port = 9;
  for (std::uint16_t from = 5100; from < 5103; ++from) {
    const FlowId flow = *guest->stack().udp().open({testing::kWorld4, testing::kGuest4, 53, from});
    ASSERT_TRUE(guest->stack().udp().send(flow, as_bytes("x")));
  }
  ASSERT_TRUE(until([&] { return gate->udp_begun == 3; }));
  EXPECT_EQ(gate->udp_gone, 3);
}

TEST_F(DriverTest, ThousandConnections) {
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < 2200) GTEST_SKIP() << "only " << files.rlim_cur << " descriptors are allowed";
  std::vector<UniqueFd> worlds;
  std::vector<FlowId> flows;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 50; ++i) flows.push_back(guest->connect());
    for (int i = 0; i < 50; ++i) worlds.push_back(accept());
  }
  ASSERT_TRUE(until([&] { return std::ranges::count(guest->events, "established") == 1000; }));
  EXPECT_EQ(driver->tcp().size(), 1000U);
  for (const FlowId flow : flows) guest->send(flow, "x");
  std::size_t got = 0;
  ASSERT_TRUE(until([&] {
    for (const auto& world : worlds) got += read(world).size();
    return got == 1000;
  }));
  worlds.clear();
  ASSERT_TRUE(until([&] { return std::ranges::count(guest->events, "eof") == 1000; }));
  for (const FlowId flow : flows) guest->stack().tcp().shutdown_write(flow);
  ASSERT_TRUE(until([&] { return driver->tcp().size() == 0; }));
}

TEST_F(DriverTest, Throughput) {
  for (const std::size_t mtu : {1500U, 16000U, 65520U}) {
    start(mtu);
    constexpr std::size_t kBytes = std::size_t{64} << 20;
    const FlowId flow = guest->connect();
    const UniqueFd world = accept();
    ASSERT_TRUE(until([&] { return saw("established"); }));
    std::thread sink([&] {
      std::string bytes(1 << 20, '\0');
      std::size_t got = 0;
      pollfd ready{world.get(), POLLIN, 0};
      while (got < kBytes && ::poll(&ready, 1, 20'000) > 0) {
        const ssize_t count = ::recv(world.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (count <= 0) break;
        got += static_cast<std::size_t>(count);
      }
      ready.events = POLLOUT;
      for (std::size_t sent = 0; sent < got && ::poll(&ready, 1, 20'000) > 0;) {
        const ssize_t count = ::send(world.get(), bytes.data(), std::min(bytes.size(), got - sent),
                                     MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count <= 0) break;
        sent += static_cast<std::size_t>(count);
      }
      ::shutdown(world.get(), SHUT_WR);
    });
    const auto begun = Clock::now();
    guest->left_to_pour = kBytes;
    guest->pour(flow);
    until([&] { return guest->left_to_pour == 0; });
    const auto poured = Clock::now();
    until([&] { return saw("eof"); });
    const auto done = Clock::now();
    sink.join();
    EXPECT_EQ(guest->received_bytes, kBytes);
    const auto rate = [&](Clock::duration took) {
      return 64.0 / std::chrono::duration<double>(took).count();
    };
    std::printf("mtu %zu: %.0f MiB/s from the guest, %.0f MiB/s to it (both stacks on one thread)\n", mtu,
                rate(poured - begun), rate(done - poured));
  }
}

// Holds everything until the world has answered, and refuses a world that says "no".
class AsksTheWorld final : public Inspector {
 public:
  Verdict look(ByteView pending, bool) override {
    if (state_ == State::kFirst && !pending.empty()) {
      state_ = State::kAsking;
      return {.pass = 1};
    }
    if (state_ == State::kAsking) return {};
    return {.pass = pending.size(), .finished = true};
  }
  [[nodiscard]] bool wants_world() const override { return state_ == State::kAsking; }
  bool on_world(ByteView bytes) override {
    if (as_text(bytes) == "no") return false;
    state_ = State::kAnswered;
    return true;
  }

 private:
  enum class State : std::uint8_t { kFirst, kAsking, kAnswered };
  State state_ = State::kFirst;
};

TEST_F(DriverTest, AnInspectorThatWaitsForTheWorld) {
  gate->verdict = [this] {
    ConnectVerdict made = to_listener();
    made.inspector = std::make_unique<AsksTheWorld>();
    return made;
  };
  for (const std::string_view answer : {"yes", "no"}) {
    const std::size_t ended = gate->gone.size();
    const auto established = std::ranges::count(guest->events, "established");
    const FlowId flow = guest->connect();
    const UniqueFd world = accept();
    ASSERT_TRUE(until([&] { return std::ranges::count(guest->events, "established") > established; }));
    guest->send(flow, "abc");
    std::string got;
    ASSERT_TRUE(until([&] { return (got += read(world)) == "a"; }));
    ASSERT_GT(::send(world.get(), answer.data(), answer.size(), MSG_NOSIGNAL), 0);
    if (answer == "yes") {
      ASSERT_TRUE(until([&] { return (got += read(world)) == "abc" && guest->received == "yes"; }));
      guest->stack().tcp().abort(flow);
      ASSERT_TRUE(until([&] { return gate->gone.size() > ended; }));
    } else {
      ASSERT_TRUE(until([&] { return gate->gone.size() > ended; }));
      EXPECT_EQ(gate->gone.back().end, FlowEnd::kRefused);
      EXPECT_EQ(guest->received, "yes");
    }
  }
}

class Greets final : public Inspector {
 public:
  Verdict look(ByteView, bool) override { return {}; }
  [[nodiscard]] bool world_may_speak_first() const override { return true; }
};

TEST_F(DriverTest, TheWorldMaySpeakFirst) {
  gate->verdict = [this] {
    ConnectVerdict made = to_listener();
    made.inspector = std::make_unique<Greets>();
    return made;
  };
  guest->connect();
  const UniqueFd world = accept();
  ASSERT_EQ(::send(world.get(), "220", 3, MSG_NOSIGNAL), 3);
  ASSERT_TRUE(until([&] { return guest->received == "220"; }));
}

// Answers each piece twice, and ends when the guest does.
class Twice final : public LocalService {
 public:
  HostTcp* tcp = nullptr;
  std::size_t times = 2;
  void on_local_bytes(FlowId flow, ByteView bytes) override {
    for (std::size_t i = 0; i < times; ++i) tcp->send_local(flow, as_text(bytes));
  }
  void on_local_end(FlowId flow) override { tcp->finish_local(flow); }
};

TEST_F(DriverTest, AServiceOfTheProgramItself) {
  Twice service;
  service.tcp = &driver->tcp();
  std::size_t counted = 0;
  driver->tcp().on_bytes([&](std::size_t bytes) { counted += bytes; });
  gate->verdict = [&] {
    ConnectVerdict made;
    made.action = ConnectVerdict::Action::kLocal;
    made.local = &service;
    return made;
  };
  const FlowId flow = guest->connect();
  ASSERT_TRUE(until([&] { return saw("established"); }));
  guest->send(flow, "ab");
  ASSERT_TRUE(until([&] { return guest->received == "abab"; }));
  guest->stack().tcp().shutdown_write(flow);
  ASSERT_TRUE(until([&] { return gate->gone.size() == 1; }));
  EXPECT_EQ(gate->gone[0].end, FlowEnd::kDone);
  EXPECT_EQ(counted, 6U);

  // A guest that asks and does not read is cut off.
  guest->reading = false;
  service.times = 1000;
  const FlowId greedy = guest->connect();
  ASSERT_TRUE(until([&] { return std::ranges::count(guest->events, "established") == 2; }));
  guest->send(greedy, std::string(1000, 'x'));
  ASSERT_TRUE(until([&] { return gate->gone.size() == 2; }));
  EXPECT_EQ(gate->gone[1].end, FlowEnd::kRefused);
  driver->tcp().on_bytes({});
}

}  // namespace
}  // namespace drupe::net
