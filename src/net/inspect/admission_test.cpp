#include "net/inspect/admission.h"

#include <gtest/gtest.h>

#include "net/inspect/testing/hello.h"

namespace drupe::net {
namespace {

using Verdict = Inspection::Verdict;
const Time kNow{std::chrono::seconds(1000)};
const IpAddress kAt = IpAddress::v4(0xc0000201);

class AdmissionOf : public ::testing::Test {
 protected:
  static std::shared_ptr<const Policy> policy(std::initializer_list<const char*> allow,
                                              std::initializer_list<const char*> deny = {}) {
    PolicySpec spec;
    spec.rules.mode = Mode::kPolicy;
    for (const char* text : allow) spec.rules.allow.push_back({text, {}});
    for (const char* text : deny) spec.rules.deny.push_back({text, {}});
    auto compiled = Policy::compile(spec, {}, 1);
    EXPECT_TRUE(compiled);
    return *compiled;
  }
  std::unique_ptr<Admission> flow(std::initializer_list<const char*> allow, std::uint16_t port,
                                  Protocol protocol = Protocol::kTcp) {
    return admit(policy(allow), pins_, log_, {protocol, kAt, port}, {}, kNow).flow;
  }
  void pin(std::string_view name) { pins_.pin(name, std::span(&kAt, 1), std::chrono::seconds(60), kNow); }
  std::string last_log() {
    const auto entries = log_.read(log_.last_sequence() - 1, 1);
    return entries.empty() ? "" : to_text_line(entries[0]).substr(25);
  }
  static std::string get(const std::string& host) { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n"; }

  Pins pins_;
  EgressLog log_{[] { return 0; }};
};

TEST_F(AdmissionOf, RefusedConnectionsAreLogged) {
  EXPECT_EQ(flow({"good.example"}, 443), nullptr);
  EXPECT_EQ(last_log(), "refused connection 192.0.2.1:443 tcp (no rule)");
}

TEST_F(AdmissionOf, NamesAreJudgedAndLogged) {
  pin("good.example");
  pin("other.example");
  const auto good = flow({"good.example:443"}, 443);
  ASSERT_NE(good, nullptr);
  EXPECT_FALSE(good->server_may_speak_first());
  EXPECT_EQ(last_log(), "allowed connection good.example 192.0.2.1:443 tcp (allow good.example:443)");
  const std::string hello = testing::hello_for("Good.Example");
  EXPECT_EQ(good->on_client(as_bytes(hello), kNow).release, hello.size());
  EXPECT_EQ(good->verified(), "good.example");
  EXPECT_EQ(last_log(), "allowed request good.example 192.0.2.1:443 tcp (allow good.example:443)");

  const auto bad = flow({"good.example:443"}, 443);
  EXPECT_EQ(bad->on_client(as_bytes(testing::hello_for("other.example")), kNow).verdict, Verdict::kRefuse);
  EXPECT_EQ(last_log(),
            "refused request other.example 192.0.2.1:443 the TLS server name 'other.example' is not allowed "
            "here (allow good.example:443)");
  const auto count = log_.counters().refused;
  EXPECT_EQ(bad->on_client(as_bytes("more"), kNow).verdict, Verdict::kRefuse);
  EXPECT_EQ(log_.counters().refused, count) << "once";
}

TEST_F(AdmissionOf, ANewPolicyEndsOrBindsTheFlow) {
  pin("good.example");
  pin("other.example");
  const auto http = flow({"good.example", "other.example"}, 80);
  EXPECT_EQ(http->on_client(as_bytes(get("good.example") + get("other.example")), kNow).verdict,
            Verdict::kPass);
  EXPECT_EQ(http->verified(), "other.example");
  EXPECT_TRUE(http->replace_policy(policy({"other.example"}), kNow));
  EXPECT_EQ(http->on_client(as_bytes(get("other.example")), kNow).verdict, Verdict::kPass);
  EXPECT_EQ(http->on_client(as_bytes(get("good.example")), kNow).verdict, Verdict::kRefuse);

  const auto tls = flow({"good.example"}, 443);
  EXPECT_EQ(tls->on_client(as_bytes(testing::hello_for("good.example")), kNow).verdict, Verdict::kPass);
  EXPECT_TRUE(tls->replace_policy(policy({"*"}), kNow));
  EXPECT_TRUE(tls->replace_policy(policy({"good.example:443"}), kNow)) << "its name is still known";
  EXPECT_FALSE(tls->replace_policy(policy({"other.example"}), kNow));
  EXPECT_EQ(last_log(), "refused connection good.example 192.0.2.1:443 ended by a new policy (no rule)");
}

TEST_F(AdmissionOf, AFlowThatWasNeverReadCannotBeBoundToAName) {
  pin("good.example");
  const auto free = flow({"*"}, 443);
  EXPECT_TRUE(free->opaque());
  EXPECT_TRUE(free->server_may_speak_first());
  EXPECT_TRUE(free->replace_policy(policy({"192.0.2.0/24"}), kNow));
  EXPECT_FALSE(free->replace_policy(policy({"good.example"}), kNow));
  const auto unread = flow({"good.example"}, 443);
  EXPECT_TRUE(unread->replace_policy(policy({"good.example:443"}), kNow)) << "it has yet to say its name";
  EXPECT_EQ(unread->on_client(as_bytes(get("other.example")), kNow).verdict, Verdict::kRefuse);
}

TEST_F(AdmissionOf, AWiderPolicyDoesNotUnbindTheInspector) {
  pin("good.example");
  const auto tcp = flow({"good.example"}, 443);
  EXPECT_TRUE(tcp->replace_policy(policy({"*"}, {"bad.example"}), kNow));
  EXPECT_EQ(tcp->on_client(as_bytes(get("bad.example")), kNow).verdict, Verdict::kRefuse);
}

TEST_F(AdmissionOf, DatagramsAreJudgedByTheirPort) {
  pin("good.example");
  EXPECT_EQ(flow({"good.example"}, 443, Protocol::kUdp), nullptr);
  const auto udp = flow({"good.example:5000"}, 5000, Protocol::kUdp);
  ASSERT_NE(udp, nullptr);
  EXPECT_TRUE(udp->opaque());
  EXPECT_TRUE(udp->replace_policy(policy({"good.example:5000", "other.example"}), kNow));
  EXPECT_FALSE(udp->replace_policy(policy({"other.example:5000"}), kNow));
}

TEST_F(AdmissionOf, WebSocketsNeedTheServersAnswer) {
  pin("good.example");
  const auto http = flow({"good.example"}, 80);
  const std::string upgrade = "GET / HTTP/1.1\r\nHost: good.example\r\nUpgrade: websocket\r\n\r\n";
  EXPECT_EQ(http->on_client(as_bytes(upgrade), kNow).verdict, Verdict::kPass);
  EXPECT_TRUE(http->wants_server());
  EXPECT_EQ(http->on_client(as_bytes("\x81"), kNow).verdict, Verdict::kNeedMore);
  EXPECT_EQ(http->on_server(as_bytes("HTTP/1.1 101 Yes\r\n\r\n"), kNow).release, upgrade.size() + 1);
  EXPECT_TRUE(http->opaque());
}

}  // namespace
}  // namespace drupe::net
