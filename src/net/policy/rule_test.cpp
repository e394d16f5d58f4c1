#include "net/policy/rule.h"

#include <gtest/gtest.h>

#include "net/policy/rule_set.h"

namespace drupe::net {
namespace {

/// "kind what port", or "column N".
std::string parsed(std::string_view text) {
  const auto rule = parse_rule(text);
  if (!rule) {
    EXPECT_EQ(rule.error().code, ErrorCode::kInvalidArgument);
    const std::size_t column = rule.error().message.find("column ");
    return column == std::string::npos
               ? rule.error().message
               : rule.error().message.substr(column, rule.error().message.find(':', column) - column);
  }
  const std::string port = rule->port == 0 ? "" : " " + std::to_string(rule->port);
  switch (rule->kind) {
    case Rule::Kind::kAny:
      return "any" + port;
    case Rule::Kind::kHost:
      return "host " + rule->host + port;
    case Rule::Kind::kSubdomains:
      return "below " + rule->host + port;
    case Rule::Kind::kNetwork:
      break;
  }
  return "network " + rule->network.to_string() + port;
}

TEST(RuleText, EveryForm) {
  const struct {
    const char* text;
    const char* meaning;
  } table[] = {
      {"*", "any"},
      {"*:443", "any 443"},
      {"example.com", "host example.com"},
      {"Example.COM.", "host example.com"},
      {"example.com:8080", "host example.com 8080"},
      {"db", "host db"},
      {"*.example.com", "below example.com"},
      {"*.example.com:22", "below example.com 22"},
      {"*.com", "below com"},
      {"xn--bcher-kva.example", "host xn--bcher-kva.example"},
      {"192.0.2.1", "network 192.0.2.1/32"},
      {"192.0.2.1:53", "network 192.0.2.1/32 53"},
      {"192.0.2.0/24", "network 192.0.2.0/24"},
      {"192.0.2.0/24:65535", "network 192.0.2.0/24 65535"},
      {"240.0.0.0/4", "network 240.0.0.0/4"},
      {"0.0.0.0/0", "network 0.0.0.0/0"},
      {"[2001:db8::1]", "network 2001:db8::1/128"},
      {"[2001:db8::1]:443", "network 2001:db8::1/128 443"},
      {"2001:db8::1", "network 2001:db8::1/128"},
      {"2001:db8::/32", "network 2001:db8::/32"},
      {"2001:db8::/32:443", "network 2001:db8::/32 443"},
      {"[2001:db8::/32]:443", "network 2001:db8::/32 443"},
      {"::ffff:192.0.2.1", "network 192.0.2.1/32"},
      {"[::ffff:192.0.2.1]:80", "network 192.0.2.1/32 80"},
      {"::/0", "network ::/0"},
  };
  for (const auto& line : table) EXPECT_EQ(parsed(line.text), line.meaning) << line.text;
}

TEST(RuleText, NamesTheColumnOfAMistake) {
  const struct {
    const char* text;
    const char* column;
  } table[] = {
      {"", "column 1"},
      {" example.com", "column 1"},
      {"exa mple.com", "column 4"},
      {"example.com ", "column 12"},
      {"https://example.com", "column 6"},
      {"example.com/path", "column 12"},
      {"example..com", "column 9"},
      {".example.com", "column 1"},
      {"b\xc3\xbc"
       "cher.example",
       "column 2"},
      {"a.*.example.com", "column 3"},
      {"*example.com", "column 2"},
      {"**", "column 2"},
      {"*.", "column 3"},
      {"*.:80", "column 3"},
      {"example.com:", "column 13"},
      {"example.com:0", "column 13"},
      {"example.com:080", "column 13"},
      {"example.com:65536", "column 13"},
      {"example.com:80-90", "column 15"},
      {"example.com:http", "column 13"},
      {":80", "column 1"},
      {"user@example.com", "column 5"},
      {"@pip", "column 1"},
      {"1.2.3", "column 1"},
      {"1.2.3.4.5", "column 1"},
      {"01.2.3.4", "column 1"},
      {"256.1.1.1:80", "column 1"},
      {"example.123", "column 9"},
      {"10.0.0.1/8", "column 10"},
      {"10.0.0.0/33", "column 10"},
      {"10.0.0.0/8:x", "column 12"},
      {"10.0.0.0/", "column 10"},
      {"[::1", "column 5"},
      {"[::1]80", "column 6"},
      {"[1.2.3.4]", "column 2"},
      {"[::1%lo]", "column 2"},
      {"[::1]/128", "column 6"},
      {"fe80::1%eth0", "column 1"},
      {"1:2:3", "column 1"},
  };
  for (const auto& line : table) EXPECT_EQ(parsed(line.text), line.column) << line.text;
  EXPECT_EQ(parsed(std::string(301, 'a')), "column 301");
  EXPECT_EQ(parsed(std::string(64, 'a')), "column 64");
  EXPECT_EQ(parsed(std::string_view("a\0b", 3)), "column 2");
}

TEST(RuleText, SuggestsTheRangeThatMayBeMeant) {
  EXPECT_NE(parse_rule("10.0.0.1/8").error().message.find("10.0.0.0/8 may be meant"), std::string::npos);
}

std::vector<RuleText> texts(std::initializer_list<const char*> list) {
  std::vector<RuleText> out;
  for (const char* text : list) out.push_back({text, {}});
  return out;
}

std::string text_of(const Rule* rule) {
  return rule == nullptr ? "none" : rule->text;
}

TEST(RuleSet, FindsTheRuleThatFitsBest) {
  const auto set =
      RuleSet::compile(texts({"example.com", "example.com:8080", "*.example.com", "*.deep.example.com:22",
                              "10.0.0.0/8", "10.1.0.0/16:22", "10.1.0.0/16:80", "2001:db8::/32", "*:9"}));
  ASSERT_TRUE(set);
  EXPECT_EQ(text_of(set->find_host("example.com", 443)), "example.com");
  EXPECT_EQ(text_of(set->find_host("example.com", 8080)), "example.com:8080");
  EXPECT_EQ(text_of(set->find_host("a.example.com", 443)), "*.example.com");
  EXPECT_EQ(text_of(set->find_host("a.deep.example.com", 22)), "*.deep.example.com:22");
  EXPECT_EQ(text_of(set->find_host("a.deep.example.com", 443)), "*.example.com");
  EXPECT_EQ(text_of(set->find_host("deep.example.com", 22)), "*.example.com");
  EXPECT_EQ(text_of(set->find_host("badexample.com", 443)), "none");
  EXPECT_EQ(text_of(set->find_host("com", 443)), "none");
  const auto address = [&](const char* text, std::uint16_t port) {
    return text_of(set->find_address(*IpAddress::parse(text), port));
  };
  EXPECT_EQ(address("10.1.2.3", 22), "10.1.0.0/16:22");
  EXPECT_EQ(address("10.1.2.3", 443), "10.0.0.0/8");
  EXPECT_EQ(address("::ffff:10.1.2.3", 80), "10.1.0.0/16:80");
  EXPECT_EQ(address("2001:db8::1", 1), "2001:db8::/32");
  EXPECT_EQ(address("192.0.2.1", 9), "*:9");
  EXPECT_EQ(address("192.0.2.1", 10), "none");
}

TEST(RuleSet, NamesTheRuleWithAMistake) {
  const auto set = RuleSet::compile(texts({"good.example", "bad..example"}));
  ASSERT_FALSE(set);
  EXPECT_TRUE(set.error().message.starts_with("Rule 2: The rule 'bad..example' is wrong at column 5"))
      << set.error().message;
}

TEST(RuleSet, TenThousandRulesAreNotScanned) {
  const auto build = [](int count) {
    std::vector<RuleText> rules;
    for (int i = 0; i < count; ++i) {
      const std::string number = std::to_string(i);
      const std::string octets = std::to_string(i / 250 % 250) + "." + std::to_string(i % 250);
      rules.push_back({"host" + number + ".example.com", {}});
      rules.push_back({"*.zone" + number + ".example.com:443", {}});
      rules.push_back({"11.1." + octets, {}});
      rules.push_back({"[2001:db8:" + number + "::/48]:443", {}});
      rules.push_back({"many.example.com:" + std::to_string(i + 1), {}});
    }
    return RuleSet::compile(rules);
  };
  const auto steps = [](const RuleSet& set) {
    RuleSet::StepCount count;
    EXPECT_NE(set.find_host("host1.example.com", 443), nullptr);
    EXPECT_NE(set.find_host("a.b.c.zone1.example.com", 443), nullptr);
    EXPECT_EQ(set.find_host("a.b.c.other.example.com", 443), nullptr);
    EXPECT_NE(set.find_host("many.example.com", 2), nullptr);
    EXPECT_NE(set.find_address(*IpAddress::parse("11.1.0.1"), 80), nullptr);
    EXPECT_EQ(set.find_address(*IpAddress::parse("12.1.0.1"), 80), nullptr);
    EXPECT_NE(set.find_address(*IpAddress::parse("2001:db8:1::1"), 443), nullptr);
    return count.steps();
  };
  const auto small = build(2);
  const auto large = build(2000);
  ASSERT_TRUE(small && large);
  EXPECT_EQ(large->size(), 10000U);
  // Only the two binary searches among the 2,000 ports of one name grow, by their logarithm.
  EXPECT_LE(steps(*large), steps(*small) + 24);
  EXPECT_LT(steps(*large), 64U);
}

TEST(RuleSet, HasABound) {
  const auto set = RuleSet::compile(std::vector<RuleText>(RuleSet::kMaxRules + 1, RuleText{"*", {}}));
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code, ErrorCode::kLimit);
}

}  // namespace
}  // namespace drupe::net
