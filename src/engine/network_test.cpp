#include "engine/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/policy/spec.h"

namespace drupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

net::PresetSource nothing_configured() {
  return {[](const std::string&) { return std::nullopt; }, [](const std::string&) { return std::nullopt; },
          [](const std::string&) { return std::vector<std::string>(); }};
}

/// A host on which only pip is configured, by its environment.
net::PresetSource pip_configured() {
  net::PresetSource source = nothing_configured();
  source.variable = [](const std::string& name) -> std::optional<std::string> {
    if (name == "PIP_INDEX_URL") return "https://packages.example.com/simple";
    return std::nullopt;
  };
  return source;
}

Result<NetworkRecord> made(const NetworkOptions& options,
                           const std::optional<NetworkOptions>& ceiling = std::nullopt) {
  return make_network(options, ceiling, nothing_configured());
}

NetworkOptions policy(std::vector<std::string> allow) {
  NetworkOptions options;
  options.mode = NetworkMode::kPolicy;
  options.allow = std::move(allow);
  return options;
}

TEST(EngineNetwork, NothingIsTheDefault) {
  const auto network = made({});
  ASSERT_TRUE(network);
  EXPECT_EQ(network->mode, NetworkMode::kNone);
}

TEST(EngineNetwork, RulesAreKeptAndPresetsSayWhereTheyComeFrom) {
  const auto network = make_network(policy({"example.com:443", "@pip"}), std::nullopt, pip_configured());
  ASSERT_TRUE(network) << network.error().message;
  ASSERT_EQ(network->allow.size(), 2U);
  EXPECT_EQ(network->allow[0], (NetworkRecord::Rule{"example.com:443", ""}));
  EXPECT_EQ(network->allow[1].text, "packages.example.com:443");
  EXPECT_THAT(network->allow[1].origin, HasSubstr("@pip"));
}

TEST(EngineNetwork, APresetThatNamesNothingIsRefused) {
  const auto network = made(policy({"@pip"}));
  ASSERT_FALSE(network);
  EXPECT_THAT(network.error().message, HasSubstr("@pip"));
}

TEST(EngineNetwork, MistakesAreToldBeforeAnythingIsMade) {
  const auto bad_rule = made(policy({"example.com", "exa mple.com"}));
  ASSERT_FALSE(bad_rule);
  EXPECT_EQ(bad_rule.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(bad_rule.error().message, HasSubstr("column"));
  EXPECT_FALSE(made(policy({"@nonsense"})));
  NetworkOptions rules_without_policy = policy({"example.com"});
  rules_without_policy.mode = NetworkMode::kOpen;
  EXPECT_FALSE(made(rules_without_policy));
  NetworkOptions ports_without_network;
  ports_without_network.publish = {"8080:80"};
  EXPECT_FALSE(made(ports_without_network));
  NetworkOptions twice = policy({});
  twice.publish = {"8080:80", "127.0.0.1:8080:81"};
  EXPECT_FALSE(made(twice));
  NetworkOptions too_wide = policy({"*"});
  too_wide.allow_private = {"0.0.0.0/0"};
  EXPECT_FALSE(made(too_wide));
}

TEST(EngineNetwork, ACeilingIsCheckedAndTravels) {
  NetworkOptions ceiling = policy({"*.example.com"});
  ASSERT_TRUE(made(policy({"a.example.com"}), ceiling));
  ceiling.allow = {"not a rule"};
  EXPECT_FALSE(made(policy({"a.example.com"}), ceiling));
  ceiling.allow = {"*.example.com"};
  NetworkRecord network;
  network.mode = NetworkMode::kOpen;
  const auto spec = net::decode_spec(encode_policy(network, ceiling));
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->rules.mode, net::Mode::kOpen);
  ASSERT_TRUE(spec->ceiling);
  EXPECT_EQ(spec->ceiling->allow.front().text, "*.example.com");
}

TEST(EngineNetwork, Publications) {
  const auto one = parse_publication("8080:80");
  ASSERT_TRUE(one);
  EXPECT_EQ(*one, (net::Publication{"127.0.0.1", 8080, 80}));
  EXPECT_EQ(parse_publication("0.0.0.0:1:65535").value(), (net::Publication{"0.0.0.0", 1, 65535}));
  EXPECT_EQ(parse_publication("[::1]:8080:80").value(), (net::Publication{"::1", 8080, 80}));
  for (const char* bad : {"", ":", "80", "0:80", "80:0", "80:65536", "x:80", "80:80x", "localhost:80:80",
                          "::1:80:80", "[::1:80:80", "80:80:80:80", "-1:80", "1.2.3:80:80"})
    EXPECT_FALSE(parse_publication(bad)) << bad;
}

}  // namespace
}  // namespace drupe
