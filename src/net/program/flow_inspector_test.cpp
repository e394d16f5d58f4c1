#include "net/program/flow_inspector.h"

#include <gtest/gtest.h>

namespace drupe::net {
namespace {

class FlowInspectorTest : public ::testing::Test {
 protected:
  void open(std::vector<RuleText> rules, std::uint16_t port) {
    PolicySpec spec;
    spec.rules.mode = Mode::kPolicy;
    spec.rules.allow = std::move(rules);
    const auto policy = Policy::compile(spec, {}, 1);
    ASSERT_TRUE(policy) << policy.error().message;
    const auto address = *IpAddress::parse("203.0.113.5");
    const Time now = std::chrono::steady_clock::now();
    pins_.pin("good.example", std::vector{address}, std::chrono::seconds(60), now);
    auto admitted = admit(*policy, pins_, log_, {Protocol::kTcp, address, port}, {}, now);
    ASSERT_NE(admitted.flow, nullptr);
    admission_ = std::move(admitted.flow);
    inspector_ = std::make_unique<FlowInspector>(*admission_);
  }
  Inspector::Verdict look(std::string_view pending) { return inspector_->look(as_bytes(pending), false); }

  Pins pins_;
  EgressLog log_{[] { return std::int64_t{0}; }};
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<FlowInspector> inspector_;
};

TEST_F(FlowInspectorTest, BytesThatAreShownAgainCountOnce) {
  open({{"good.example:80", ""}}, 80);
  EXPECT_FALSE(inspector_->world_may_speak_first());
  const std::string request = "GET / HTTP/1.1\r\nHost: good.example\r\n\r\n";
  for (std::size_t size = 1; size < request.size(); ++size) {
    const auto verdict = look(std::string_view(request).substr(0, size));
    ASSERT_FALSE(verdict.refuse) << size;
    ASSERT_EQ(verdict.pass, 0U) << size;
  }
  EXPECT_EQ(look(request).pass, request.size());
  // What passed is not shown again.
  EXPECT_EQ(look(request.substr(0, 5)).pass, 0U);
  EXPECT_EQ(look(request).pass, request.size());
}

TEST_F(FlowInspectorTest, TheSecondRequestIsReadToo) {
  open({{"good.example:80", ""}}, 80);
  const std::string good = "GET / HTTP/1.1\r\nHost: good.example\r\n\r\n";
  EXPECT_EQ(look(good).pass, good.size());
  EXPECT_TRUE(look("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").refuse);
  EXPECT_TRUE(look("").refuse);
}

TEST_F(FlowInspectorTest, WhatWaitsForTheServerIsFreeAfterItsAnswer) {
  open({{"good.example:80", ""}}, 80);
  const std::string upgrade =
      "GET /chat HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
  EXPECT_EQ(look(upgrade).pass, upgrade.size());
  EXPECT_TRUE(inspector_->wants_world());
  const std::string frame("\x81\x85\x01\x02\x03\x04 abcd", 11);
  EXPECT_EQ(look(frame).pass, 0U);
  EXPECT_TRUE(
      inspector_->on_world(as_bytes("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                                    "Connection: Upgrade\r\n\r\n")));
  const auto verdict = look(frame);
  EXPECT_EQ(verdict.pass, frame.size());
  EXPECT_TRUE(verdict.finished);
}

TEST_F(FlowInspectorTest, AServerMaySpeakFirstWhereOtherProtocolsPass) {
  open({{"good.example:25", ""}}, 25);
  EXPECT_TRUE(inspector_->world_may_speak_first());
  const std::string greeting = "EHLO me\r\n";
  const auto verdict = look(greeting);
  EXPECT_EQ(verdict.pass, greeting.size());
  EXPECT_TRUE(verdict.finished);
}

}  // namespace
}  // namespace drupe::net
