#include "net/program/upstream.h"

#include <sys/socket.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

namespace drupe::net {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

TEST(Endpoint, Spellings) {
  struct Case {
    const char* text;
    const char* address;  // nullptr: refused
    std::uint16_t port;
  };
  for (const Case& one : std::vector<Case>{
           {"192.0.2.1", "192.0.2.1", 53},
           {"192.0.2.1:5353", "192.0.2.1", 5353},
           {"2001:db8::1", "2001:db8::1", 53},
           {"[2001:db8::1]", "2001:db8::1", 53},
           {"[2001:db8::1]:853", "2001:db8::1", 853},
           {"192.0.2.1:", nullptr, 0},
           {"192.0.2.1:0", nullptr, 0},
           {"192.0.2.1:65536", nullptr, 0},
           {"192.0.2.1:5x", nullptr, 0},
           {"[2001:db8::1", nullptr, 0},
           {"[2001:db8::1]853", nullptr, 0},
           {"resolver.example", nullptr, 0},
           {"", nullptr, 0},
       }) {
    const auto parsed = parse_endpoint(one.text, 53);
    ASSERT_EQ(parsed.has_value(), one.address != nullptr) << one.text;
    if (!parsed) continue;
    EXPECT_EQ(to_string(parsed->address), one.address);
    EXPECT_EQ(parsed->port, one.port);
  }
}

struct Server {
  UniqueFd socket;
  Endpoint endpoint{PacketAddress::v4(127, 0, 0, 1), 0};
  explicit Server(int type) : socket(::socket(AF_INET, type | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    socklen_t size = sizeof at;
    EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
    endpoint.port = ntohs(at.sin_port);
  }
};

class UpstreamTest : public ::testing::Test {
 protected:
  Upstream& with(std::vector<Endpoint> servers) {
    upstream_ = std::make_unique<Upstream>(
        *loop_, std::move(servers),
        [this](std::uint64_t token, dns::Transport, ByteView message) {
          answers_.emplace_back(token, as_text(message));
        },
        [this](std::uint64_t token) { failed_.push_back(token); });
    return *upstream_;
  }
  bool until(const std::function<bool()>& done) {
    const auto result = loop_->run_until(done, Clock::now() + 5s);
    return result && *result;
  }
  std::unique_ptr<EventLoop> loop_ = *EventLoop::create();
  std::vector<std::pair<std::uint64_t, std::string>> answers_;
  std::vector<std::uint64_t> failed_;
  std::unique_ptr<Upstream> upstream_;
};

TEST_F(UpstreamTest, EachQueryHasItsOwnSocket) {
  Server server(SOCK_DGRAM);
  Upstream& upstream = with({server.endpoint});
  upstream.send({1, dns::Transport::kUdp, 0, "one"});
  upstream.send({2, dns::Transport::kUdp, 0, "two"});
  std::vector<in_port_t> ports;
  for (int i = 0; i < 2; ++i) {
    char buffer[16];
    sockaddr_in from{};
    socklen_t size = sizeof from;
    const ssize_t got =
        ::recvfrom(server.socket.get(), buffer, sizeof buffer, 0, reinterpret_cast<sockaddr*>(&from), &size);
    ASSERT_EQ(got, 3);
    ports.push_back(from.sin_port);
    ::sendto(server.socket.get(), buffer, 3, 0, reinterpret_cast<sockaddr*>(&from), size);
  }
  EXPECT_NE(ports[0], ports[1]);
  ASSERT_TRUE(until([&] { return answers_.size() == 2; }));
  upstream.close(1);
  EXPECT_EQ(upstream.sockets(), 1U);
  upstream.close(2);
  EXPECT_EQ(upstream.sockets(), 0U);
}

TEST_F(UpstreamTest, AnotherServerIsAskedInAnotherAttempt) {
  Server first(SOCK_DGRAM), second(SOCK_DGRAM);
  Upstream& upstream = with({first.endpoint, second.endpoint});
  upstream.send({1, dns::Transport::kUdp, 1, "x"});
  char buffer[4];
  EXPECT_EQ(::recv(second.socket.get(), buffer, sizeof buffer, 0), 1);
  EXPECT_EQ(::recv(first.socket.get(), buffer, sizeof buffer, MSG_DONTWAIT), -1);
}

TEST_F(UpstreamTest, ARefusedDatagramAndAMissingServerAreFailures) {
  std::optional<Server> gone(SOCK_DGRAM);
  const Endpoint endpoint = gone->endpoint;
  gone.reset();
  with({endpoint}).send({1, dns::Transport::kUdp, 0, "x"});
  ASSERT_TRUE(until([&] { return !failed_.empty(); }));
  EXPECT_THAT(failed_, ElementsAre(1));
  failed_.clear();
  with({}).send({2, dns::Transport::kUdp, 0, "x"});
  ASSERT_TRUE(until([&] { return !failed_.empty(); }));
  EXPECT_THAT(failed_, ElementsAre(2));
}

TEST_F(UpstreamTest, FramesOverTcp) {
  Server server(SOCK_STREAM);
  ASSERT_EQ(::listen(server.socket.get(), 1), 0);
  Upstream& upstream = with({server.endpoint});
  upstream.send({7, dns::Transport::kTcp, 0, "question"});
  const UniqueFd peer(::accept4(server.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(peer.valid());
  std::string got;
  ASSERT_TRUE(until([&] {
    char buffer[64];
    const ssize_t size = ::recv(peer.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (size > 0) got.append(buffer, static_cast<std::size_t>(size));
    return got.size() == 10;
  }));
  EXPECT_EQ(got, dns::tcp_frame("question"));
  const std::string answer = dns::tcp_frame("answer");
  ::send(peer.get(), answer.data(), answer.size(), 0);
  ASSERT_TRUE(until([&] { return !answers_.empty(); }));
  EXPECT_EQ(answers_[0].second, "answer");
  // The end of the connection without an answer to a later question.
  ::shutdown(peer.get(), SHUT_WR);
  ASSERT_TRUE(until([&] { return !failed_.empty(); }));
}

}  // namespace
}  // namespace drupe::net
