#include "net/program/peer_table.h"

#include <gtest/gtest.h>

namespace drupe::net {
namespace {

std::vector<PeerNetwork> two_networks() {
  return {{"n1", "blue", {{"aaaaaaaaaaaa", "Web", "198.18.0.2"}, {"bbbbbbbbbbbb", "db_1", "198.18.0.3"}}},
          {"n2", "red", {{"aaaaaaaaaaaa", "Web", "198.18.1.2"}}}};
}

TEST(PeerTable, NamesMeanMembers) {
  const auto entries = peer_entries(two_networks());
  ASSERT_TRUE(entries);
  auto names = peer_names(*entries);
  const auto first = *IpAddress::parse("198.18.0.2");
  const auto second = *IpAddress::parse("198.18.1.2");
  const auto other = *IpAddress::parse("198.18.0.3");
  for (const char* zone : {".drupe.internal", ".fc.local"}) {
    EXPECT_EQ(names["web" + std::string(zone)], (std::vector{first, second}));
    EXPECT_EQ(names["web.blue" + std::string(zone)], std::vector{first});
    EXPECT_EQ(names["web.red" + std::string(zone)], std::vector{second});
    EXPECT_EQ(names["aaaaaaaaaaaa" + std::string(zone)], (std::vector{first, second}));
    EXPECT_EQ(names["db_1" + std::string(zone)], std::vector{other});
    EXPECT_FALSE(names.contains("db_1.red" + std::string(zone)));
  }
  EXPECT_FALSE(names.contains("web"));
}

TEST(PeerTable, AMemberWithoutAHostNameIsFoundByItsId) {
  const auto entries = peer_entries(
      {{"n", "net", {{"aaaaaaaaaaaa", "x..y", "198.18.0.2"}, {"bbbbbbbbbbbb", "", "198.18.0.3"}}}});
  ASSERT_TRUE(entries);
  const auto names = peer_names(*entries);
  EXPECT_EQ(names.size(), 8U);
  EXPECT_TRUE(names.contains("bbbbbbbbbbbb.net.drupe.internal"));
}

TEST(PeerTable, AliasesAreNamesAsTheyStand) {
  const auto entries = peer_entries({{"n",
                                      "net",
                                      {{"aaaaaaaaaaaa", "", "198.18.0.2", {"web", "Web.blue"}},
                                       {"bbbbbbbbbbbb", "", "198.18.0.3", {"not a name"}}}}});
  ASSERT_TRUE(entries);
  const auto names = peer_names(*entries);
  EXPECT_TRUE(names.contains("web.drupe.internal"));
  EXPECT_TRUE(names.contains("web.blue.fc.local"));
  EXPECT_FALSE(names.contains("web.net.fc.local"));
  EXPECT_EQ(names.size(), 12U);  // four for each id, four for the aliases
}

TEST(PeerTable, TwoOfOneAddressAreAMistake) {
  auto networks = two_networks();
  networks[1].members[0].address = "198.18.0.3";
  EXPECT_FALSE(peer_entries(networks));
  networks = two_networks();
  networks[0].members[1].sandbox = "aaaaaaaaaaaa";
  EXPECT_FALSE(peer_entries(networks));
  for (const char* address : {"", "198.18.0", "2001:db8::1", "example.com"}) {
    networks = two_networks();
    networks[0].members[0].address = address;
    EXPECT_FALSE(peer_entries(networks)) << address;
  }
}

}  // namespace
}  // namespace drupe::net
