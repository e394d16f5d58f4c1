#include "protocol/port.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/socket.h>

#include <gtest/gtest.h>

namespace drupe {
namespace {

using namespace std::chrono_literals;

class PortTest : public testing::Test {
 protected:
  struct End {
    std::unique_ptr<Port> port;
    std::string data;
    std::vector<FrameType> types;
    std::vector<std::uint64_t> epochs;
    std::optional<Error> broken;
    int rooms = 0;
    bool refuse = false;
  };

  void SetUp() override {
    loop_ = *EventLoop::create();
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    open(a_, UniqueFd(pair[0]));
    open(b_, UniqueFd(pair[1]));
  }

  void open(End& end, UniqueFd fd) {
    Port::Callbacks callbacks;
    callbacks.on_frame = [&end](const Frame& frame) -> Status {
      if (end.refuse) return fail(ErrorCode::kGuest, "refused");
      end.types.push_back(frame.type);
      end.data += as_text(frame.payload);
      return {};
    };
    callbacks.on_broken = [&end](Error error) { end.broken = std::move(error); };
    callbacks.on_marker = [&end](std::uint64_t epoch) { end.epochs.push_back(epoch); };
    callbacks.on_room = [&end] { ++end.rooms; };
    end.port = *Port::create(*loop_, std::move(fd), {.high_water = 100'000, .limit = 1'000'000},
                             std::move(callbacks));
  }

  bool until(const std::function<bool()>& done) { return *loop_->run_until(done, Clock::now() + 5s); }

  std::unique_ptr<EventLoop> loop_;
  End a_, b_;
};

TEST_F(PortTest, CarriesFramesBothWays) {
  a_.port->send(FrameType::kData, Channel::kStdin, 1, "hello ");
  const auto room = a_.port->prepare(100);
  std::copy_n("world", 5, room.begin());
  a_.port->commit(FrameType::kData, Channel::kStdin, 1, 5);
  b_.port->send(FrameType::kEof, Channel::kStdout, 1, "");
  ASSERT_TRUE(until([&] { return b_.data == "hello world" && a_.types.size() == 1; }));
}

TEST_F(PortTest, TellsWhenThereIsRoomAgain) {
  b_.port->pause_reading(true);
  const std::string big(kMaxPayload, 'x');
  int sent = 0;
  while (a_.port->has_room() || sent < 4) {
    a_.port->send(FrameType::kData, Channel::kStdin, 1, big);
    ++sent;
    ASSERT_TRUE(loop_->run_once(Clock::now()));
    ASSERT_LT(sent, 100);
  }
  EXPECT_EQ(a_.rooms, 0);
  b_.port->pause_reading(false);
  ASSERT_TRUE(until([&] { return b_.data.size() == static_cast<std::size_t>(sent) * kMaxPayload; }));
  EXPECT_EQ(a_.rooms, 1);
}

TEST_F(PortTest, GivesUpAPeerThatDoesNotRead) {
  b_.port->pause_reading(true);
  const std::string big(kMaxPayload, 'x');
  for (int i = 0; i < 40 && !a_.broken; ++i) {
    a_.port->send(FrameType::kData, Channel::kStdin, 1, big);
    ASSERT_TRUE(loop_->run_once(Clock::now()));
  }
  ASSERT_TRUE(a_.broken);
  EXPECT_EQ(a_.broken->code, ErrorCode::kLimit);
}

TEST_F(PortTest, MarkersDivideEpochs) {
  b_.port->await_marker(0);
  a_.port->send_raw("left over from before");
  a_.port->send_marker(42);
  a_.port->send(FrameType::kData, Channel::kStdin, 1, "after");
  ASSERT_TRUE(until([&] { return b_.data == "after"; }));
  EXPECT_EQ(b_.epochs, std::vector<std::uint64_t>{42});
}

TEST_F(PortTest, FindsAMarkerAmongHostileBytesWhenTold) {
  std::optional<Error> desync;
  End c, d;
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  open(c, UniqueFd(pair[0]));
  Port::Callbacks callbacks;
  callbacks.on_frame = [&d](const Frame& frame) -> Status {
    if (frame.type == FrameType::kReset) return fail(ErrorCode::kGuest, "refused");
    d.data += as_text(frame.payload);
    return {};
  };
  callbacks.on_marker = [&d](std::uint64_t epoch) { d.epochs.push_back(epoch); };
  callbacks.on_desync = [&desync](Error error) { desync = std::move(error); };
  d.port = *Port::create(*loop_, UniqueFd(pair[1]), {}, std::move(callbacks));
  c.port->send(FrameType::kData, Channel::kStdin, 1, "one ");
  c.port->send_raw(std::string(100, '\xff'));
  c.port->send_marker(7);
  c.port->send(FrameType::kData, Channel::kStdin, 1, "two ");
  c.port->send_marker(8);  // where a frame should begin
  c.port->send(FrameType::kReset, Channel::kStdin, 1, "");
  c.port->send(FrameType::kData, Channel::kStdin, 1, "lost ");
  c.port->send_marker(9);
  c.port->send(FrameType::kData, Channel::kStdin, 1, "three");
  ASSERT_TRUE(until([&] { return d.data == "one two three"; })) << d.data;
  EXPECT_EQ(d.epochs, (std::vector<std::uint64_t>{7, 8, 9}));
  EXPECT_TRUE(desync);
}

TEST_F(PortTest, BreaksOnHostileBytes) {
  a_.port->send_raw(std::string(100, '\xff'));
  ASSERT_TRUE(until([&] { return b_.broken.has_value(); }));
  EXPECT_EQ(b_.broken->code, ErrorCode::kIntegrity);
  b_.port->send(FrameType::kEof, Channel::kStdin, 1, "");  // harmless afterwards
  ASSERT_TRUE(loop_->run_once(Clock::now()));
}

TEST_F(PortTest, BreaksWhenTheCallbackRefuses) {
  b_.refuse = true;
  a_.port->send(FrameType::kEof, Channel::kStdin, 1, "");
  ASSERT_TRUE(until([&] { return b_.broken.has_value(); }));
}

TEST_F(PortTest, ReportsAClosedPeer) {
  a_.port.reset();
  ASSERT_TRUE(until([&] { return b_.broken.has_value(); }));
  EXPECT_EQ(b_.broken->code, ErrorCode::kUnavailable);
}

TEST_F(PortTest, CallsBackWhenFlushed) {
  bool flushed = false;
  a_.port->send(FrameType::kData, Channel::kStdin, 1, "x");
  a_.port->when_flushed([&] { flushed = true; });
  ASSERT_TRUE(until([&] { return flushed; }));
  EXPECT_EQ(a_.port->queued(), 0U);
}

}  // namespace
}  // namespace drupe
