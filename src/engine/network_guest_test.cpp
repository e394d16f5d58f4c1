// An engine's ceiling, seen from a real guest.
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <gmock/gmock.h>

#include "engine/testing/guest_engine.h"

namespace drupe {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

/// A resolver on loopback that gives every name one documentation address and remembers what it was asked.
class Resolver {
 public:
  Resolver() : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    socklen_t size = sizeof address;
    EXPECT_EQ(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    const std::string place = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    ::setenv("DRUPE_RESOLVERS", place.c_str(), 1);
    thread_ = std::thread([this] { serve(); });
  }
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;
  ~Resolver() {
    ending_ = true;
    ::shutdown(socket_.get(), SHUT_RDWR);  // wakes recvfrom(), also of a socket that is not connected
    thread_.join();
    ::unsetenv("DRUPE_RESOLVERS");
  }
  std::vector<std::string> asked() {
    const std::lock_guard guard(mutex_);
    return asked_;
  }

 private:
  void serve() {
    while (!ending_) {
      std::string query(512, '\0');
      sockaddr_in peer{};
      socklen_t size = sizeof peer;
      const ssize_t got =
          ::recvfrom(socket_.get(), query.data(), query.size(), 0, reinterpret_cast<sockaddr*>(&peer), &size);
      if (got < 17) continue;
      query.resize(static_cast<std::size_t>(got));
      std::size_t end = 12;
      std::string name;
      while (end < query.size() && query[end] != '\0') {
        const auto label = static_cast<std::size_t>(query[end]);
        name += (name.empty() ? "" : ".") + query.substr(end + 1, label);
        end += label + 1;
      }
      {
        const std::lock_guard guard(mutex_);
        asked_.push_back(name);
      }
      const bool is_a = end + 2 < query.size() && query[end + 2] == 1;
      std::string reply = query.substr(0, 2) + std::string("\x81\x80\0\1\0", 5) + (is_a ? '\1' : '\0') +
                          std::string(4, '\0') + query.substr(12, end + 5 - 12);
      // RFC 1035, 4.1.3: name, A, IN, a minute, four bytes.
      if (is_a) reply += std::string("\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\xcb\0\x71\5", 16);
      ::sendto(socket_.get(), reply.data(), reply.size(), 0, reinterpret_cast<const sockaddr*>(&peer), size);
    }
  }

  UniqueFd socket_;
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;
  std::vector<std::string> asked_;
  std::thread thread_;
};

class NetworkGuest : public GuestEngineTest {
 protected:
  void SetUp() override {
    if (::access((engine_options().binary_dir + "/drupe-net").c_str(), X_OK) != 0)
      GTEST_SKIP() << "drupe-net is not built";
    GuestEngineTest::SetUp();
    if (IsSkipped()) return;
    auto options = engine_options();
    options.network_ceiling.emplace();
    options.network_ceiling->mode = NetworkMode::kPolicy;
    options.network_ceiling->allow = {"*.allowed.example"};
    options.network_ceiling->deny = {"never.allowed.example"};
    auto opened = Engine::open(options);
    ASSERT_TRUE(opened) << opened.error().message;
    engine_ = std::move(*opened);
  }

  std::string lookup(const std::string& id, const std::string& name) {
    return sh(id, "nslookup " + name + " 2>&1 || true");
  }
};

TEST_F(NetworkGuest, NothingAboveTheEnginesCeilingIsReached) {
  Resolver resolver;
  auto options = sandbox_options();
  options.auto_remove = true;
  options.network.mode = NetworkMode::kOpen;
  const auto made = engine().create(options);
  ASSERT_TRUE(made) << made.error().message;
  const std::string& id = made->record.id;
  ASSERT_TRUE(engine().start(id, false, true));
  EXPECT_THAT(lookup(id, "a.allowed.example"), HasSubstr("203.0.113.5"));
  EXPECT_THAT(lookup(id, "never.allowed.example"), HasSubstr("REFUSED"));
  EXPECT_THAT(lookup(id, "other.example"), HasSubstr("REFUSED"));
  // Nor by a change while it runs.
  NetworkOptions wider;
  wider.mode = NetworkMode::kPolicy;
  wider.allow = {"*", "other.example"};
  ASSERT_TRUE(engine().set_network(id, wider));
  EXPECT_THAT(lookup(id, "other.example"), HasSubstr("REFUSED"));
  EXPECT_THAT(lookup(id, "b.allowed.example"), HasSubstr("203.0.113.5"));
  const auto asked = resolver.asked();
  EXPECT_THAT(asked, Contains("b.allowed.example"));
  EXPECT_THAT(asked, Not(Contains("other.example")));
  EXPECT_THAT(asked, Not(Contains("never.allowed.example")));
}

}  // namespace
}  // namespace drupe
