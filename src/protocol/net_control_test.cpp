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
  const auto back = NetConfig::decode(as_bytes(config.encode()));
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, config);
}

TEST(ControlMessages, EveryTruncationIsRefused) {
  NetConfig config;
  config.publications = {{"::1", 1, 2}};
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

}  // namespace
}  // namespace drupe::net
