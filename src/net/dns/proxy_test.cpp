#include "net/dns/proxy.h"

#include <gtest/gtest.h>

#include "net/dns/filter.h"

namespace drupe::net::dns {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
const Time kStart{seconds(1000)};
constexpr std::uint64_t kClient = 77;

Name named(std::string_view text) {
  return *Name::from_text(text);
}
IpAddress at(std::string_view text) {
  return *IpAddress::parse(text);
}
Record address_record(std::string_view name, std::string_view address, std::uint32_t ttl = 300) {
  const IpAddress value = at(address);
  return {named(name), value.is_v4() ? kA : kAaaa, kInternet, ttl, std::string(as_text(value.wire()))};
}
Record alias(std::string_view name, std::string_view target, std::uint32_t ttl = 300) {
  return {named(name), kCname, kInternet, ttl, named(target).wire()};
}
std::string query(std::string_view name, std::uint16_t type = kA, std::uint16_t id = 1,
                  std::optional<Edns> edns = std::nullopt) {
  Message message;
  message.id = id;
  message.recursion_desired = true;
  message.questions.push_back({named(name), type, kInternet});
  message.edns = edns;
  return write_message(message, 65535);
}

class DnsProxy : public testing::Test {
 protected:
  void use(RuleTexts rules, bool has_ipv6 = true) {
    auto policy = Policy::compile({std::move(rules), {}}, {{}, {}, has_ipv6}, 1);
    ASSERT_TRUE(policy) << policy.error().message;
    policy_ = *policy;
    if (proxy_) proxy_->set_policy(policy_);
  }
  void allow(std::initializer_list<const char*> names, bool has_ipv6 = true) {
    RuleTexts rules;
    rules.mode = Mode::kPolicy;
    for (const char* name : names) rules.allow.push_back({name, {}});
    use(std::move(rules), has_ipv6);
  }
  Proxy& proxy(Proxy::Options options = {}) {
    if (!proxy_)
      proxy_ =
          std::make_unique<Proxy>(policy_, pins_, log_, [this] { return next_id_++; }, std::move(options));
    return *proxy_;
  }
  Output ask(const std::string& bytes, Transport transport = Transport::kUdp) {
    return proxy().on_query(kClient, transport, as_bytes(bytes), now_);
  }
  static Message read(const std::string& bytes) {
    auto message = parse_message(as_bytes(bytes));
    EXPECT_TRUE(message) << message.error().message;
    return message ? *message : Message();
  }
  static Message only_answer(const Output& out) {
    EXPECT_EQ(out.answers.size(), 1U);
    return out.answers.empty() ? Message() : read(out.answers[0].message);
  }
  /// What an upstream resolver would answer to the one forwarded message.
  static Message reply_to(const Forward& forward, std::vector<Record> answers,
                          Rcode rcode = Rcode::kNoError) {
    Message message = read(forward.message);
    message.response = true;
    message.rcode = rcode;
    message.answers = std::move(answers);
    return message;
  }
  Output upstream(const Forward& forward, const Message& message) {
    return proxy().on_upstream(forward.token, forward.transport, as_bytes(write_message(message, 65535)),
                               now_);
  }
  /// Asks and answers; the message that the guest gets.
  Message lookup(std::string_view name, std::vector<Record> answers, std::uint16_t type = kA) {
    const Output out = ask(query(name, type, 1, Edns{1232, 0, 0}));
    EXPECT_EQ(out.forwards.size(), 1U) << name;
    if (out.forwards.size() != 1) return {};
    return only_answer(upstream(out.forwards[0], reply_to(out.forwards[0], std::move(answers))));
  }
  std::string last_log() {
    const auto entries = log_.read(log_.last_sequence() - 1, 1);
    return entries.empty() ? ""
                           : (entries[0].allowed ? "allowed " : "refused ") + entries[0].name + " " +
                                 entries[0].detail + " " + entries[0].rule;
  }

  std::shared_ptr<const Policy> policy_;
  Pins pins_;
  EgressLog log_{[] { return 0; }};
  std::unique_ptr<Proxy> proxy_;
  std::uint16_t next_id_ = 100;
  Time now_ = kStart;
};

TEST_F(DnsProxy, OnlyAllowedNamesLeave) {
  allow({"good.example", "*.wild.example:443"});
  for (const char* name : {"secret-data.evil.example", "x.good.example", "wild.example"}) {
    for (const std::uint16_t type : {kA, kAaaa, kTxt, kMx, kHttps}) {
      const Output out = ask(query(name, type));
      EXPECT_TRUE(out.forwards.empty());
      EXPECT_EQ(only_answer(out).rcode, Rcode::kRefused) << name;
    }
  }
  EXPECT_EQ(last_log(), "refused wild.example HTTPS no rule");
  EXPECT_EQ(ask(query("GOOD.example")).forwards.size(), 1U);
  EXPECT_EQ(last_log(), "allowed good.example A allow good.example");
  EXPECT_EQ(ask(query("a.b.wild.example", kTxt)).forwards.size(), 1U);
}

TEST_F(DnsProxy, AnAnswerPinsTheNameThatWasAsked) {
  allow({"good.example"});
  const Message answer = lookup(
      "Good.Example",
      {alias("good.example", "a.cdn.example", 120), alias("a.cdn.example", "b.cdn.example"),
       address_record("b.cdn.example", "192.0.2.1", 900), address_record("b.cdn.example", "192.0.2.2", 900)});
  EXPECT_EQ(answer.id, 1);
  EXPECT_TRUE(answer.response && answer.recursion_available);
  EXPECT_EQ(answer.questions[0].name.text(), "Good.Example") << "the client's spelling comes back";
  EXPECT_EQ(answer.answers.size(), 4U);
  EXPECT_EQ(pins_.names_at(at("192.0.2.1"), now_), std::vector<std::string>{"good.example"});
  EXPECT_EQ(pins_.names_at(at("192.0.2.2"), now_ + seconds(120)).size(), 1U);
  EXPECT_TRUE(pins_.names_at(at("192.0.2.2"), now_ + seconds(126)).empty())
      << "the chain's smallest TTL counts";
}

TEST_F(DnsProxy, RecordsThatDoNotBelongAreDropped) {
  allow({"good.example"});
  const Message answer =
      lookup("good.example", {address_record("good.example", "192.0.2.1"),
                              address_record("other.example", "192.0.2.9"),
                              address_record("good.example", "2001:db8::1"),
                              {named("good.example"), kTxt, kInternet, 60, "\x01x"},
                              {named("good.example"), kHttps, kInternet, 60, std::string(3, '\0')},
                              {named("good.example"), kA, 3, 60, "abcd"}});
  ASSERT_EQ(answer.answers.size(), 1U);
  EXPECT_TRUE(pins_.names_at(at("192.0.2.9"), now_).empty());
  EXPECT_EQ(pins_.size(), 1U);
}

TEST_F(DnsProxy, AliasesThatGoInCirclesEnd) {
  allow({"good.example"});
  std::vector<Record> circle{alias("good.example", "a.example"), alias("a.example", "good.example")};
  EXPECT_EQ(lookup("good.example", circle).answers.size(), kLongestChain);
}

TEST_F(DnsProxy, RebindingAddressesAreDropped) {
  allow({"good.example"});
  const char* inside[] = {"127.0.0.1",  "10.0.0.1", "172.16.0.1",      "192.168.0.1", "169.254.169.254",
                          "100.64.0.1", "0.0.0.0",  "255.255.255.255", "224.0.0.1"};
  const char* inside6[] = {"::1",
                           "::",
                           "fe80::1",
                           "fd00:ec2::254",
                           "::ffff:127.0.0.1",
                           "::ffff:169.254.169.254",
                           "64:ff9b::10.0.0.1",
                           "2002:7f00:1::",
                           "ff02::1",
                           "::127.0.0.1",
                           "::ffff:0:127.0.0.1"};
  for (const char* address : inside) {
    const Message answer = lookup("good.example", {address_record("good.example", address),
                                                   address_record("good.example", "192.0.2.1")});
    EXPECT_EQ(answer.rcode, Rcode::kNoError);
    EXPECT_EQ(answer.answers.size(), 1U) << address;
    EXPECT_TRUE(pins_.names_at(at(address), now_).empty()) << address;
  }
  for (const char* address : inside6) {
    Record record = address_record("good.example", "2001:db8::1");
    record.data = std::string(as_text(at(address).bytes()));
    EXPECT_TRUE(lookup("good.example", {record}, kAaaa).answers.empty()) << address;
  }
  EXPECT_NE(last_log().find("refused good.example AAAA closed: "), std::string::npos) << last_log();
  // Opened ranges pass.
  RuleTexts rules;
  rules.mode = Mode::kPolicy;
  rules.allow.push_back({"good.example", {}});
  rules.allow_private = {"10.0.0.0/8"};
  use(rules);
  EXPECT_EQ(lookup("good.example", {address_record("good.example", "10.0.0.1")}).answers.size(), 1U);
  EXPECT_EQ(pins_.names_at(at("10.0.0.1"), now_).size(), 1U);
}

TEST_F(DnsProxy, SixtyAddressesAndTruncation) {
  allow({"good.example"});
  std::vector<Record> many;
  for (int i = 0; i < 60; ++i) many.push_back(address_record("good.example", "192.0.2." + std::to_string(i)));
  EXPECT_EQ(lookup("good.example", many).answers.size(), 60U) << "1232 bytes are enough";
  EXPECT_EQ(pins_.size(), 60U);
  // A client without EDNS takes 512 bytes, is told so, and comes back over TCP.
  Output out = ask(query("good.example"));
  const Message cut = only_answer(upstream(out.forwards.at(0), reply_to(out.forwards[0], many)));
  EXPECT_TRUE(cut.truncated && cut.answers.empty());
  out = ask(query("good.example"), Transport::kTcp);
  const Message whole = only_answer(upstream(out.forwards.at(0), reply_to(out.forwards[0], many)));
  EXPECT_EQ(whole.answers.size(), 60U);
}

TEST_F(DnsProxy, ATruncatedAnswerIsFetchedAgainOverTcp) {
  allow({"good.example"});
  Output out = ask(query("good.example", kA, 1, Edns{4096, 0, 0}));
  Message cut = reply_to(out.forwards.at(0), {});
  cut.truncated = true;
  const Output again = upstream(out.forwards[0], cut);
  ASSERT_EQ(again.forwards.size(), 1U);
  EXPECT_TRUE(again.answers.empty());
  EXPECT_EQ(again.forwards[0].transport, Transport::kTcp);
  EXPECT_NE(read(again.forwards[0].message).id, read(out.forwards[0].message).id);
  const Output done =
      upstream(again.forwards[0], reply_to(again.forwards[0], {address_record("good.example", "192.0.2.1")}));
  EXPECT_EQ(only_answer(done).answers.size(), 1U);
  EXPECT_EQ(done.closed, std::vector<std::uint64_t>{again.forwards[0].token});
}

TEST_F(DnsProxy, NegativeAnswersComeThrough) {
  allow({"*.example"});
  const Record soa{named("example"), kSoa, kInternet, 900,
                   named("ns.example").wire() + named("root.example").wire() + std::string(20, '\1')};
  Output out = ask(query("no.such.example"));
  Message reply = reply_to(out.forwards.at(0), {}, Rcode::kNxDomain);
  reply.authority.push_back(soa);
  Message answer = only_answer(upstream(out.forwards[0], reply));
  EXPECT_EQ(answer.rcode, Rcode::kNxDomain);
  ASSERT_EQ(answer.authority.size(), 1U) << "resolvers cache by it";
  for (const Rcode rcode : {Rcode::kServFail, Rcode::kRefused}) {
    out = ask(query("a.example"));
    EXPECT_EQ(only_answer(upstream(out.forwards.at(0), reply_to(out.forwards[0], {}, rcode))).rcode, rcode);
  }
}

TEST_F(DnsProxy, TypesThatAreAnsweredHere) {
  allow({"*"}, false);
  EXPECT_EQ(only_answer(ask(query("a.example", kAaaa))).rcode, Rcode::kNoError)
      << "no IPv6 here: nothing to wait for";
  EXPECT_EQ(only_answer(ask(query("a.example", kHttps))).rcode, Rcode::kNoError);
  EXPECT_EQ(only_answer(ask(query("_dns.a.example", kSvcb))).answers.size(), 0U);
  EXPECT_EQ(only_answer(ask(query("a.example", kAny))).rcode, Rcode::kNotImp);
  for (const std::uint16_t type : {kAxfr, kIxfr, kOpt, Type(0), Type(250)})
    EXPECT_EQ(only_answer(ask(query("a.example", type))).rcode, Rcode::kRefused) << type;
  EXPECT_EQ(only_answer(ask(query("1.0.0.10.in-addr.arpa", kPtr))).rcode, Rcode::kNxDomain)
      << "inside names stay inside";
  EXPECT_EQ(ask(query("1.2.0.192.in-addr.arpa", kPtr)).forwards.size(), 1U);
  EXPECT_EQ(reverse_address("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"),
            at("2001:db8::1"));
  EXPECT_FALSE(reverse_address("2.0.192.in-addr.arpa"));
}

TEST_F(DnsProxy, MalformedQueries) {
  allow({"*"});
  EXPECT_TRUE(ask("short").answers.empty());
  std::string response = query("a.example");
  response[2] = static_cast<char>(response[2] | 0x80);
  EXPECT_TRUE(ask(response).answers.empty());
  EXPECT_EQ(only_answer(ask(query("a.example") + "x")).rcode, Rcode::kFormErr);
  EXPECT_EQ(only_answer(ask(query("a.example").substr(0, 14))).rcode, Rcode::kFormErr);
  std::string notify = query("a.example");
  notify[2] = 0x20;
  EXPECT_EQ(only_answer(ask(notify)).rcode, Rcode::kNotImp);
  const Message bad_version = only_answer(ask(query("a.example", kA, 1, Edns{512, 1, 0})));
  ASSERT_TRUE(bad_version.edns);
  EXPECT_EQ(bad_version.edns->extended_rcode, 1) << "BADVERS is 16";
  Message chaos;
  chaos.questions.push_back({named("version.bind"), kTxt, 3});
  EXPECT_EQ(only_answer(ask(write_message(chaos, 512))).rcode, Rcode::kRefused);
  Message odd;
  odd.questions.push_back({Name(std::string("\x03"
                                            "a.b\x00",
                                            5)),
                           kA, kInternet});
  EXPECT_EQ(only_answer(ask(write_message(odd, 512))).rcode, Rcode::kRefused);
  EXPECT_EQ(proxy().outstanding(), 0U);
}

TEST_F(DnsProxy, OnlyTheRightAnswerCounts) {
  allow({"good.example", "other.example"});
  const Output out = ask(query("good.example"));
  const Forward& forward = out.forwards.at(0);
  const std::vector<Record> evil{address_record("good.example", "192.0.2.66")};
  Message wrong = reply_to(forward, evil);
  ++wrong.id;
  EXPECT_TRUE(upstream(forward, wrong).answers.empty());
  wrong = reply_to(forward, evil);
  wrong.questions[0].name = named("other.example");
  EXPECT_TRUE(upstream(forward, wrong).answers.empty());
  wrong = reply_to(forward, evil);
  wrong.response = false;
  EXPECT_TRUE(upstream(forward, wrong).answers.empty());
  EXPECT_TRUE(proxy()
                  .on_upstream(forward.token + 1, Transport::kUdp,
                               as_bytes(write_message(reply_to(forward, evil), 512)), now_)
                  .answers.empty());
  EXPECT_TRUE(proxy()
                  .on_upstream(forward.token, Transport::kTcp,
                               as_bytes(write_message(reply_to(forward, evil), 512)), now_)
                  .answers.empty());
  EXPECT_EQ(pins_.size(), 0U);
  EXPECT_EQ(only_answer(upstream(forward, reply_to(forward, {address_record("good.example", "192.0.2.1")})))
                .answers.size(),
            1U);
  EXPECT_TRUE(upstream(forward, reply_to(forward, evil)).answers.empty()) << "one answer is enough";
}

TEST_F(DnsProxy, TheGuestsOwnOptionsStayHere) {
  allow({"good.example"});
  std::string bytes = query("good.example", kA, 0x4242);
  bytes[11] = 1;  // one additional record: EDNS with a cookie of the guest's
  bytes += std::string("\0\0\x29\x10\0\0\0\x80\0\0\x0c\0\x0a\0\x08secret!!", 23);
  const Output out = ask(bytes);
  ASSERT_EQ(out.forwards.size(), 1U);
  EXPECT_EQ(out.forwards[0].message.find("secret"), std::string::npos);
  EXPECT_NE(read(out.forwards[0].message).id, 0x4242);
}

TEST_F(DnsProxy, ServersWithoutEdnsAreAskedWithout) {
  allow({"good.example"});
  const Output out = ask(query("good.example"));
  Message reply = reply_to(out.forwards.at(0), {}, Rcode::kFormErr);
  reply.questions.clear();
  reply.edns.reset();
  const Output again = upstream(out.forwards[0], reply);
  ASSERT_EQ(again.forwards.size(), 1U);
  EXPECT_FALSE(read(again.forwards[0].message).edns);
  reply = reply_to(again.forwards[0], {}, Rcode::kFormErr);
  EXPECT_EQ(only_answer(upstream(again.forwards[0], reply)).rcode, Rcode::kServFail) << "once only";
}

TEST_F(DnsProxy, ADeadUpstreamIsAnsweredInTime) {
  allow({"good.example"});
  Output out = ask(query("good.example"));
  EXPECT_EQ(out.forwards.at(0).attempt, 0U);
  EXPECT_EQ(proxy().next_deadline(), kStart + Proxy::kRetryAfter);
  EXPECT_TRUE(proxy().on_time(now_ + milliseconds(1499)).forwards.empty());
  out = proxy().on_time(now_ + milliseconds(1500));
  ASSERT_EQ(out.forwards.size(), 1U);
  EXPECT_EQ(out.forwards[0].attempt, 1U);
  out = proxy().on_time(now_ + milliseconds(3000));
  ASSERT_EQ(out.forwards.size(), 1U);
  EXPECT_EQ(out.forwards[0].attempt, 2U);
  out = proxy().on_time(now_ + Proxy::kGiveUp);
  EXPECT_EQ(only_answer(out).rcode, Rcode::kServFail);
  EXPECT_EQ(out.closed.size(), 1U);
  EXPECT_FALSE(proxy().next_deadline());
  // Refused sockets are tried again at once, a few times.
  out = ask(query("good.example"));
  const std::uint64_t token = out.forwards.at(0).token;
  int attempts = 0;
  do out = proxy().on_upstream_failed(token, now_);
  while (++attempts < 100 && out.answers.empty());
  EXPECT_EQ(attempts, 6);
  EXPECT_EQ(only_answer(out).rcode, Rcode::kServFail);
}

TEST_F(DnsProxy, ASlowAnswerToTheFirstAttemptStillCounts) {
  allow({"good.example"});
  const Output first = ask(query("good.example"));
  EXPECT_EQ(proxy().on_time(now_ + Proxy::kRetryAfter).forwards.size(), 1U);
  EXPECT_EQ(proxy().on_time(now_ + 2 * Proxy::kRetryAfter).forwards.size(), 1U);
  const Message reply = reply_to(first.forwards.at(0), {address_record("good.example", "192.0.2.1")});
  EXPECT_EQ(only_answer(upstream(first.forwards[0], reply)).answers.size(), 1U);
}

TEST_F(DnsProxy, IsBounded) {
  allow({"*"});
  for (std::uint16_t i = 0; i < 1000; ++i) {
    const Output out = ask(query("a.example", kA, i));
    if (i < Proxy::kMaxOutstanding)
      EXPECT_EQ(out.forwards.size(), 1U);
    else
      EXPECT_EQ(only_answer(out).rcode, Rcode::kServFail);
  }
  EXPECT_EQ(proxy().outstanding(), Proxy::kMaxOutstanding);
  EXPECT_TRUE(ask(query("a.example", kA, 5)).forwards.empty()) << "a repeated query is under way already";
  EXPECT_EQ(proxy().forget_client(kClient).closed.size(), Proxy::kMaxOutstanding);
  EXPECT_EQ(proxy().outstanding(), 0U);
}

TEST_F(DnsProxy, ANewPolicyJudgesAnswersUnderWay) {
  allow({"good.example"});
  const Output out = ask(query("good.example"));
  allow({"other.example"});
  const Message answer = only_answer(
      upstream(out.forwards.at(0), reply_to(out.forwards[0], {address_record("good.example", "192.0.2.1")})));
  EXPECT_EQ(answer.rcode, Rcode::kRefused);
  EXPECT_EQ(pins_.size(), 0U);
}

TEST_F(DnsProxy, SearchDomainsGoOnToTheNextOne) {
  allow({"db.second.example"});
  Proxy::Options options;
  options.search_domains = {"first.example", "second.example"};
  static_cast<void>(proxy(options));
  EXPECT_EQ(only_answer(ask(query("db.first.example"))).rcode, Rcode::kNxDomain);
  EXPECT_EQ(ask(query("db.second.example")).forwards.size(), 1U);
  EXPECT_EQ(only_answer(ask(query("first.example"))).rcode, Rcode::kRefused);
  EXPECT_EQ(only_answer(ask(query("evil.example"))).rcode, Rcode::kRefused);
}

TEST_F(DnsProxy, RefusalsCanBeSpelledForMusl) {
  allow({"good.example"});
  Proxy::Options options;
  options.refusal = Rcode::kNxDomain;
  static_cast<void>(proxy(options));
  EXPECT_EQ(only_answer(ask(query("evil.example"))).rcode, Rcode::kNxDomain);
}

TEST_F(DnsProxy, PrivateNetworksHaveNames) {
  allow({"good.example"});
  proxy().set_local_names(
      {{"db.drupe.internal", {at("10.77.0.2"), at("fd77::2")}}, {"db.fc.local", {at("10.77.0.2")}}});
  Message answer = only_answer(ask(query("DB.drupe.internal")));
  ASSERT_EQ(answer.answers.size(), 1U);
  EXPECT_EQ(answer.answers[0].data, std::string(as_text(at("10.77.0.2").wire())));
  EXPECT_EQ(only_answer(ask(query("db.drupe.internal", kAaaa))).answers.size(), 1U);
  answer = only_answer(ask(query("db.fc.local", kAaaa)));
  EXPECT_EQ(answer.rcode, Rcode::kNoError);
  EXPECT_TRUE(answer.answers.empty());
  EXPECT_EQ(only_answer(ask(query("web.drupe.internal"))).rcode, Rcode::kNxDomain);
  EXPECT_EQ(only_answer(ask(query("fc.local"))).rcode, Rcode::kNxDomain);
  EXPECT_EQ(pins_.size(), 0U);
}

TEST_F(DnsProxy, TtlsAreLoweredToTheCeiling) {
  allow({"good.example"});
  const Message answer = lookup("good.example", {address_record("good.example", "192.0.2.1", 604800),
                                                 address_record("good.example", "192.0.2.2", 0x80000001U)});
  EXPECT_EQ(answer.answers[0].ttl, static_cast<std::uint32_t>(Pins::kCeiling.count()));
  EXPECT_EQ(answer.answers[1].ttl, 0U);
}

}  // namespace
}  // namespace drupe::net::dns
