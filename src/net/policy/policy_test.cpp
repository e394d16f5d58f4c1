#include "net/policy/policy.h"

#include <gtest/gtest.h>

namespace drupe::net {
namespace {

RuleTexts rules(Mode mode, std::initializer_list<const char*> allow,
                std::initializer_list<const char*> deny = {}, std::vector<std::string> allow_private = {}) {
  RuleTexts out;
  out.mode = mode;
  for (const char* text : allow) out.allow.push_back({text, {}});
  for (const char* text : deny) out.deny.push_back({text, {}});
  out.allow_private = std::move(allow_private);
  return out;
}

std::shared_ptr<const Policy> make(RuleTexts texts, std::optional<RuleTexts> ceiling = std::nullopt) {
  auto policy = Policy::compile({std::move(texts), std::move(ceiling)}, {{}, {}, true}, 1);
  EXPECT_TRUE(policy) << policy.error().message;
  return policy ? *policy : nullptr;
}

Destination tcp(const char* address, std::uint16_t port) {
  return {Protocol::kTcp, *IpAddress::parse(address), port};
}
Destination udp(const char* address, std::uint16_t port) {
  return {Protocol::kUdp, *IpAddress::parse(address), port};
}

const std::vector<std::string> kNoPins;
const std::vector<std::string> kGood{"good.example"};
const std::vector<std::string> kBoth{"good.example", "other.example"};

/// "refused: rule", or "check names rule".
std::string text(const Decision& decision) {
  if (!decision.allowed) return "refused: " + decision.rule;
  std::string out;
  switch (decision.check) {
    case NameCheck::kNone:
      out = "free";
      break;
    case NameCheck::kNotDenied:
      out = "not-denied";
      break;
    case NameCheck::kIfSpoken:
      out = "if-spoken";
      break;
    case NameCheck::kRequired:
      out = "required";
      break;
  }
  for (const std::string& name : decision.names) out += " " + name;
  return out + ": " + decision.rule;
}

TEST(Policy, Modes) {
  const auto none = make(rules(Mode::kNone, {"*"}));
  EXPECT_EQ(text(none->decide_name("good.example")), "refused: mode none");
  EXPECT_EQ(text(none->decide(tcp("192.0.2.1", 443), kGood)), "refused: mode none");
  const auto open = make(rules(Mode::kOpen, {}));
  EXPECT_EQ(text(open->decide_name("good.example")), "free: mode open");
  EXPECT_EQ(text(open->decide(tcp("192.0.2.1", 443), kNoPins)), "free: mode open");
  EXPECT_EQ(text(open->decide(tcp("10.0.0.1", 443), kNoPins)), "refused: closed: private 10.0.0.0/8");
  const auto empty = make(rules(Mode::kPolicy, {}));
  EXPECT_EQ(text(empty->decide(udp("192.0.2.1", 53), kGood)), "refused: no rule");
}

TEST(Policy, NamesByRule) {
  const auto policy = make(
      rules(Mode::kPolicy, {"good.example", "*.wild.example:443", "192.0.2.0/24"}, {"bad.wild.example"}));
  EXPECT_EQ(text(policy->decide_name("GOOD.example.")), "free: allow good.example");
  EXPECT_EQ(text(policy->decide_name("a.b.wild.example")), "free: allow *.wild.example:443");
  EXPECT_EQ(text(policy->decide_name("wild.example")), "refused: no rule");
  EXPECT_EQ(text(policy->decide_name("bad.wild.example")), "refused: deny bad.wild.example");
  EXPECT_EQ(text(policy->decide_name("x.good.example")), "refused: no rule");
  EXPECT_EQ(text(policy->decide_name("b\xc3\xbc.example")), "refused: not a host name");
  EXPECT_EQ(text(make(rules(Mode::kPolicy, {"*:443"}))->decide_name("any.example")), "free: allow *:443");
}

TEST(Policy, ConnectionsByNameRules) {
  const auto policy = make(rules(Mode::kPolicy, {"good.example", "other.example:2222", "udp.example:5000"}));
  const char* at = "192.0.2.1";
  const std::vector<std::string> udp_pin{"udp.example"};
  EXPECT_EQ(text(policy->decide(tcp(at, 443), kNoPins)), "refused: no rule");
  EXPECT_EQ(text(policy->decide(tcp(at, 443), kGood)), "required good.example: allow good.example");
  EXPECT_EQ(text(policy->decide(tcp(at, 80), kBoth)), "required good.example: allow good.example");
  EXPECT_EQ(text(policy->decide(tcp(at, 22), kGood)), "required good.example: allow good.example");
  EXPECT_EQ(text(policy->decide(tcp(at, 2222), kBoth)),
            "if-spoken good.example other.example: allow good.example");
  EXPECT_EQ(text(policy->decide(udp(at, 443), kGood)), "refused: no rule: names cannot be checked over UDP");
  EXPECT_EQ(text(policy->decide(udp(at, 2222), kBoth)), "if-spoken other.example: allow other.example:2222");
  EXPECT_EQ(text(policy->decide(udp(at, 5000), udp_pin)), "if-spoken udp.example: allow udp.example:5000");
  EXPECT_EQ(text(policy->decide(tcp("10.0.0.1", 443), kGood)), "refused: closed: private 10.0.0.0/8");
}

TEST(Policy, WebPortsNeverCarryOtherProtocolsUnderNameRules) {
  const auto policy = make(rules(Mode::kPolicy, {"good.example:443", "good.example:80"}));
  EXPECT_EQ(policy->decide(tcp("192.0.2.1", 443), kGood).check, NameCheck::kRequired);
  EXPECT_EQ(policy->decide(tcp("192.0.2.1", 80), kGood).check, NameCheck::kRequired);
  EXPECT_FALSE(policy->decide(udp("192.0.2.1", 443), kGood).allowed);
  EXPECT_FALSE(policy->decide(tcp("192.0.2.1", 8443), kGood).allowed);
}

TEST(Policy, ConnectionsByAddressRules) {
  const auto policy = make(rules(Mode::kPolicy, {"192.0.2.0/24:443", "198.51.100.7", "[2001:db8::/32]:443"}));
  EXPECT_EQ(text(policy->decide(tcp("192.0.2.9", 443), kNoPins)), "free: allow 192.0.2.0/24:443");
  EXPECT_EQ(text(policy->decide(tcp("::ffff:192.0.2.9", 443), kNoPins)), "free: allow 192.0.2.0/24:443");
  EXPECT_EQ(text(policy->decide(tcp("192.0.2.9", 80), kNoPins)), "refused: no rule");
  EXPECT_EQ(text(policy->decide(udp("198.51.100.7", 53), kNoPins)), "free: allow 198.51.100.7");
  EXPECT_EQ(text(policy->decide(tcp("2001:db8::1", 443), kNoPins)), "free: allow [2001:db8::/32]:443");
  EXPECT_EQ(text(policy->decide(tcp("64:ff9b::198.51.100.7", 53), kNoPins)), "refused: no rule")
      << "allowed as written only";
}

TEST(Policy, DenyWins) {
  const auto policy =
      make(rules(Mode::kOpen, {}, {"192.0.2.0/24", "*:25", "bad.example", "half.example:22"}));
  EXPECT_EQ(text(policy->decide(tcp("192.0.2.1", 443), kNoPins)), "refused: deny 192.0.2.0/24");
  EXPECT_EQ(text(policy->decide(tcp("64:ff9b::192.0.2.1", 443), kNoPins)), "refused: deny 192.0.2.0/24")
      << "in every spelling";
  EXPECT_EQ(text(policy->decide(tcp("198.51.100.1", 25), kNoPins)), "refused: deny *:25");
  EXPECT_EQ(text(policy->decide_name("bad.example")), "refused: deny bad.example");
  EXPECT_EQ(text(policy->decide_name("half.example")), "free: mode open") << "only one port is denied";
  const Decision decision = policy->decide(tcp("198.51.100.1", 22), kNoPins);
  EXPECT_EQ(text(decision), "not-denied: mode open");
  EXPECT_FALSE(policy->accepts_name(decision, "Bad.Example", 22));
  EXPECT_FALSE(policy->accepts_name(decision, "half.example", 22));
  EXPECT_TRUE(policy->accepts_name(decision, "half.example", 443));
  EXPECT_TRUE(policy->accepts_name(decision, "fine.example", 22));
  EXPECT_EQ(text(policy->decide(tcp("198.51.100.1", 22), std::vector<std::string>{"half.example"})),
            "refused: deny half.example:22");
  EXPECT_EQ(text(make(rules(Mode::kPolicy, {"*"}, {"*"}))->decide_name("a.example")), "refused: deny *");
}

TEST(Policy, TwoNamesOnOneAddressAreToldApart) {
  const auto pip = make(rules(Mode::kPolicy, {"good.example:443"}));
  const Decision decision = pip->decide(tcp("192.0.2.1", 443), kBoth);
  EXPECT_TRUE(pip->accepts_name(decision, "GOOD.example", 443));
  EXPECT_FALSE(pip->accepts_name(decision, "other.example", 443));
  EXPECT_FALSE(pip->accepts_name(decision, "192.0.2.1", 443));
  EXPECT_FALSE(pip->accepts_name(decision, "", 443));
  EXPECT_FALSE(pip->accepts_name(decision, std::string_view("good.example\0", 13), 443));
}

TEST(Policy, ACeilingIsNeverExceeded) {
  const auto ceiling = rules(Mode::kPolicy, {"good.example:443", "192.0.2.0/24"}, {"192.0.2.66"});
  const auto policy = make(rules(Mode::kOpen, {}, {}, {"10.0.0.0/8"}), ceiling);
  EXPECT_EQ(text(policy->decide_name("other.example")), "refused: ceiling: no rule");
  EXPECT_EQ(text(policy->decide_name("good.example")), "free: mode open");
  EXPECT_EQ(text(policy->decide(tcp("198.51.100.1", 443), kNoPins)), "refused: ceiling: no rule");
  EXPECT_EQ(text(policy->decide(tcp("198.51.100.1", 443), kBoth)), "required good.example: mode open");
  EXPECT_EQ(text(policy->decide(tcp("192.0.2.1", 22), kNoPins)), "free: mode open");
  EXPECT_EQ(text(policy->decide(tcp("192.0.2.66", 22), kNoPins)), "refused: ceiling: deny 192.0.2.66");
  EXPECT_EQ(text(policy->decide(tcp("10.0.0.1", 22), kNoPins)),
            "refused: ceiling: closed: private 10.0.0.0/8");
  const auto disjoint = make(rules(Mode::kPolicy, {"other.example"}), ceiling);
  EXPECT_EQ(text(disjoint->decide(tcp("198.51.100.1", 443), kBoth)), "refused: ceiling: no rule");
  const auto shut = make(rules(Mode::kOpen, {}), rules(Mode::kNone, {}));
  EXPECT_EQ(text(shut->decide(tcp("192.0.2.1", 443), kNoPins)), "refused: ceiling: mode none");
  EXPECT_EQ(text(shut->decide_name("good.example")), "refused: ceiling: mode none");
}

TEST(Policy, OpenFlowsAreJudgedAgain) {
  const auto before = make(rules(Mode::kPolicy, {"good.example", "other.example:2222"}));
  const auto narrow = make(rules(Mode::kPolicy, {"other.example:2222"}));
  const auto open = make(rules(Mode::kOpen, {}, {"good.example"}));
  const auto none = make(rules(Mode::kNone, {}));
  const FlowFacts verified{tcp("192.0.2.1", 443), NameCheck::kRequired, kBoth, "good.example"};
  EXPECT_TRUE(before->recheck(verified).allowed);
  EXPECT_EQ(text(narrow->recheck(verified)), "refused: no rule");
  EXPECT_EQ(text(open->recheck(verified)), "refused: deny good.example");
  EXPECT_EQ(text(none->recheck(verified)), "refused: mode none");
  const FlowFacts undecided{tcp("192.0.2.1", 2222), NameCheck::kIfSpoken, kBoth, ""};
  EXPECT_EQ(text(narrow->recheck(undecided)), "if-spoken other.example: allow other.example:2222");
  EXPECT_EQ(text(make(rules(Mode::kPolicy, {"other.example"}))->recheck(undecided)),
            "refused: no rule without a name");
  const FlowFacts by_address{tcp("192.0.2.1", 443), NameCheck::kNone, kGood, ""};
  EXPECT_EQ(text(before->recheck(by_address)), "refused: no rule without a name");
  EXPECT_TRUE(make(rules(Mode::kPolicy, {"192.0.2.1:443"}))->recheck(by_address).allowed);
}

TEST(Policy, SaysWhatIsWrongAndWhere) {
  const auto allow = Policy::compile({rules(Mode::kPolicy, {"fine.example", "b ad"}), {}}, {}, 1);
  ASSERT_FALSE(allow);
  EXPECT_TRUE(
      allow.error().message.starts_with("What is allowed: Rule 2: The rule 'b ad' is wrong at column 2"));
  const auto ceiling = Policy::compile({rules(Mode::kOpen, {}), rules(Mode::kPolicy, {}, {"/"})}, {}, 1);
  ASSERT_FALSE(ceiling);
  EXPECT_TRUE(
      ceiling.error().message.starts_with("The ceiling of the network policy: What is denied: Rule 1"));
}

TEST(Policy, NamesTheRuleOfAVerifiedName) {
  RuleTexts texts = rules(Mode::kPolicy, {"*.example:443"});
  texts.allow.push_back({"pypi.example:443", "@pip"});
  const auto policy = make(texts);
  EXPECT_EQ(policy->rule_for("pypi.example", 443), "allow pypi.example:443 (@pip)");
  EXPECT_EQ(policy->rule_for("x.example", 443), "allow *.example:443");
  EXPECT_EQ(policy->rule_for("x.example", 80), "no rule");
}

TEST(PolicySpec, TravelsAsBytes) {
  PolicySpec spec{rules(Mode::kPolicy, {"a.example", "*"}, {"b.example"}, {"10.0.0.0/8"}),
                  rules(Mode::kOpen, {})};
  spec.rules.allow[0].origin = "@pip";
  const std::string bytes = encode_spec(spec);
  const auto back = decode_spec(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, spec);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_spec(bytes.substr(0, size))) << size;
  EXPECT_FALSE(decode_spec(bytes + "x"));
}

TEST(PolicySpec, TheControlPlanesLists) {
  EXPECT_EQ(rules_from_list({}).mode, Mode::kOpen);
  EXPECT_EQ(rules_from_list({"*"}).mode, Mode::kOpen);
  EXPECT_EQ(rules_from_list({"*", "a.example"}).mode, Mode::kPolicy);
  // How a client of the control plane spells "no network".
  const auto policy = make(rules_from_list({"240.0.0.0/4"}));
  EXPECT_FALSE(policy->decide(tcp("192.0.2.1", 443), kNoPins).allowed);
  EXPECT_FALSE(policy->decide(tcp("240.0.0.1", 443), kNoPins).allowed);
  EXPECT_FALSE(policy->decide_name("good.example").allowed);
}

}  // namespace
}  // namespace drupe::net
