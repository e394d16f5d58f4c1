#include "protocol/net_control.h"

#include <gtest/gtest.h>

namespace drupe::net {
namespace {

TEST(ControlMessages, AConfigurationComesBackWhole) {
  NetConfig config;
  config.mac = {2, 1, 2, 3, 4, 5};
  config.mtu = 1500;
  config.guest_v4 = "192.0.2.2";
  config.gateway_v4 = "192.0.2.1";
  config.resolvers = {"192.0.2.53:5353"};
  config.search = {"example.com"};
  config.policy = std::string("\0rules", 6);
  config.publications = {{"127.0.0.1", 8080, 80}};
  config.quota_bytes = 1;
  config.flows = "table";
  config.networks = {{"n1", "blue", {{"aaaaaaaaaaaa", "web", "198.18.0.2"}}}, {"n2", "red", {}}};
  const auto back = NetConfig::decode(as_bytes(config.encode()));
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, config);
}

TEST(ControlMessages, EveryTruncationIsRefused) {
  NetConfig config;
  config.publications = {{"::1", 1, 2}};
  config.networks = {{"n1", "blue", {{"aaaaaaaaaaaa", "web", "198.18.0.2"}}}};
  const std::string whole = config.encode();
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(NetConfig::decode(as_bytes(std::string_view(whole).substr(0, size)))) << size;
  EXPECT_FALSE(NetConfig::decode(as_bytes(whole + "x")));
  const LogPage page{{"{}", "{\"name\":\"example.com\"}"}, 7, 3};
  const auto back = LogPage::decode(as_bytes(page.encode()));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->lines, page.lines);
  EXPECT_EQ(back->lost, 3U);
}

TEST(ControlMessages, NetworksAreBounded) {
  SetNetworks set;
  set.networks.resize(kMaxNetworks);
  set.networks[0].members.resize(kMaxMembers);
  EXPECT_TRUE(SetNetworks::decode(as_bytes(set.encode())));
  set.networks[0].members.resize(kMaxMembers + 1);
  EXPECT_FALSE(SetNetworks::decode(as_bytes(set.encode())));
  set.networks[0].members.clear();
  set.networks[0].members.resize(1);
  set.networks[0].members[0].aliases = {"a", "b"};
  EXPECT_TRUE(SetNetworks::decode(as_bytes(set.encode())));
  set.networks[0].members[0].aliases = {"a", "b", "c"};
  EXPECT_FALSE(SetNetworks::decode(as_bytes(set.encode())));
  set.networks[0].members.clear();
  set.networks.resize(kMaxNetworks + 1);
  EXPECT_FALSE(SetNetworks::decode(as_bytes(set.encode())));
}

TEST(ControlMessages, APeerComesBackWhole) {
  const PeerId peer{"0123456789ab", "ba9876543210"};
  const auto back = PeerId::decode(as_bytes(peer.encode()));
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, peer);
  EXPECT_FALSE(PeerId::decode(as_bytes(peer.encode() + "x")));
  EXPECT_FALSE(PeerId::decode(as_bytes(PeerId{std::string(kMaxPeerId, 'n'), "s"}.encode())));
  const PeerChannelGrant grant{peer, true};
  const auto granted = PeerChannelGrant::decode(as_bytes(grant.encode()));
  ASSERT_TRUE(granted);
  EXPECT_EQ(granted->peer, peer);
  EXPECT_TRUE(granted->connected);
}

}  // namespace
}  // namespace drupe::net
