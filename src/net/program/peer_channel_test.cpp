#include "net/program/peer_channel.h"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/pass_fds.h"

namespace drupe::net {
namespace {

class PeerChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    loop_ = *EventLoop::create();
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    other_ = UniqueFd(ends[1]);
    channel_ = std::make_unique<PeerChannel>(
        *loop_, UniqueFd(ends[0]),
        [this](ByteView bytes, UniqueFd passed) {
          packets_.emplace_back(as_text(bytes));
          passed_.push_back(std::move(passed));
          return good_;
        },
        [this] { ++closed_; });
    ASSERT_TRUE(channel_->start());
  }
  void turn() {
    ASSERT_TRUE(loop_->run_until([] { return true; }, Clock::now()));
  }
  void wait_for_close() {
    ASSERT_TRUE(*loop_->run_until([this] { return closed_ > 0; }, Clock::now() + std::chrono::seconds(20)));
  }

  std::unique_ptr<EventLoop> loop_;
  UniqueFd other_;
  std::unique_ptr<PeerChannel> channel_;
  std::vector<std::string> packets_;
  std::vector<UniqueFd> passed_;
  bool good_ = true;
  int closed_ = 0;
};

TEST_F(PeerChannelTest, OneDescriptorComesAndMoreEndIt) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd one(ends[0]), two(ends[1]);
  ASSERT_TRUE(send_with_fds(other_.get(), "a", std::array{one.get()}));
  channel_->drain();
  ASSERT_EQ(packets_.size(), 1U);
  EXPECT_TRUE(is_peer_stream(passed_[0].get()));
  ASSERT_TRUE(send_with_fds(other_.get(), "b", std::array{one.get(), two.get()}));
  channel_->drain();
  EXPECT_EQ(packets_.size(), 1U);
  EXPECT_TRUE(channel_->closed());
  wait_for_close();
  EXPECT_EQ(closed_, 1);
}

TEST_F(PeerChannelTest, APacketThatIsTooLongEndsIt) {
  const std::string giant(kMaxPeerMessage + 1, 'x');
  ASSERT_TRUE(send_with_fds(other_.get(), giant, {}));
  channel_->drain();
  EXPECT_TRUE(packets_.empty());
  wait_for_close();
}

TEST_F(PeerChannelTest, WhoeverRefusesAPacketEndsIt) {
  good_ = false;
  ASSERT_TRUE(send_with_fds(other_.get(), "a", {}));
  wait_for_close();
  EXPECT_EQ(packets_.size(), 1U);
  char byte = 0;
  EXPECT_EQ(::recv(other_.get(), &byte, 1, MSG_DONTWAIT), 0);
}

TEST_F(PeerChannelTest, APeerThatReadsNothingIsGivenUp) {
  PeerMessage message;
  message.kind = PeerMessageKind::kOpened;
  for (std::size_t i = 0; i < 2 * PeerChannel::kMaxQueued && !channel_->closed(); ++i) {
    message.number = static_cast<std::uint32_t>(i);
    channel_->send(message);
  }
  EXPECT_TRUE(channel_->closed());
  wait_for_close();
}

TEST_F(PeerChannelTest, AnEndIsToldBeforeItsStreamEnds) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  PeerMessage message;
  message.kind = PeerMessageKind::kOpened;
  // More than the socket takes: the rest waits.
  std::size_t sent = 0;
  for (; sent < PeerChannel::kMaxQueued / 2; ++sent) channel_->send(message);
  message.kind = PeerMessageKind::kEnd;
  channel_->send(message, {}, std::move(ours));
  char byte = 0;
  ASSERT_EQ(::recv(theirs.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  std::array<char, 64> packet{};
  std::size_t got = 0;
  const auto read_all = [&] {
    while (::recv(other_.get(), packet.data(), packet.size(), MSG_DONTWAIT) > 0) ++got;
    return got == sent + 1;
  };
  ASSERT_TRUE(*loop_->run_until(read_all, Clock::now() + std::chrono::seconds(20)));
  EXPECT_EQ(::recv(theirs.get(), &byte, 1, MSG_DONTWAIT), 0);
}

TEST_F(PeerChannelTest, OnlyConnectedStreamsAreStreams) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd pipe_in(ends[0]), pipe_out(ends[1]);
  EXPECT_FALSE(is_peer_stream(pipe_in.get()));
  EXPECT_FALSE(is_peer_stream(-1));
  EXPECT_FALSE(is_peer_stream(UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)).get()));
  EXPECT_FALSE(is_peer_stream(UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)).get()));
  EXPECT_FALSE(is_peer_stream(other_.get()));
}

}  // namespace
}  // namespace drupe::net
