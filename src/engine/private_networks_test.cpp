#include "engine/private_networks.h"

#include <set>

#include <gtest/gtest.h>

#include "base/files.h"
#include "engine/testing/temp_home.h"

namespace drupe {
namespace {

class PrivateNetworks : public TempHome {
 protected:
  /// A sandbox as far as networks look at it.
  void make_sandbox(const std::string& id, const std::string& name) {
    SandboxRecord record;
    record.id = id;
    record.name = name;
    record.disk_chain = {kImageFile};
    ASSERT_TRUE(make_dirs(path_ + "/" + Home::sandbox(id)));
    write(record);
  }
  static std::string id_of(unsigned number) {
    const std::string id = std::to_string(number);
    return std::string(12 - id.size(), '0') + id;
  }
};

TEST_F(PrivateNetworks, NamesAreLabels) {
  for (const char* good : {"a", "Blue", "a-b_c9", "0"}) EXPECT_TRUE(check_network_name(good)) << good;
  for (const char* bad : {"", "-a", "_a", "a.b", "a b", "none", "host", "ä", "../x"})
    EXPECT_FALSE(check_network_name(bad)) << bad;
  EXPECT_TRUE(check_network_name(std::string(63, 'a')));
  EXPECT_FALSE(check_network_name(std::string(64, 'a')));
}

TEST_F(PrivateNetworks, EachHasItsOwnNameAndSubnet) {
  std::set<std::uint32_t> subnets;
  for (const char* name : {"a", "b", "c"}) subnets.insert(make_private_network(home(), name)->subnet);
  EXPECT_EQ(subnets.size(), 3U);
  const auto again = make_private_network(home(), "B");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kAlreadyExists);
  // What is given back is used again.
  const auto b = find_private_network(home(), "B");
  ASSERT_TRUE(b);
  ASSERT_TRUE(drupe::remove_private_network(home(), *b));
  EXPECT_EQ(find_private_network(home(), "b").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(make_private_network(home(), "d")->subnet, b->subnet);
}

TEST_F(PrivateNetworks, ThereAreOnlySoManySubnets) {
  for (std::uint32_t i = 0; i < kSubnets; ++i)
    ASSERT_TRUE(make_private_network(home(), "n" + std::to_string(i))) << i;
  const auto one_more = make_private_network(home(), "more");
  ASSERT_FALSE(one_more);
  EXPECT_EQ(one_more.error().code, ErrorCode::kLimit);
}

TEST_F(PrivateNetworks, MembersKeepTheirAddresses) {
  make_sandbox(id_of(1), "one");
  make_sandbox(id_of(2), "two");
  auto network = make_private_network(home(), "blue");
  ASSERT_TRUE(add_member(home(), *network, id_of(1)));
  ASSERT_TRUE(add_member(home(), *network, id_of(2)));
  const auto before = network->members;
  ASSERT_TRUE(add_member(home(), *network, id_of(1)));
  EXPECT_EQ(network->members, before);
  EXPECT_EQ(address_of(*network, before[0]), "198.18.0.2");
  EXPECT_EQ(address_of(*network, before[1]), "198.18.0.3");
  const auto peers = networks_of(home(), id_of(2));
  ASSERT_TRUE(peers);
  ASSERT_EQ(peers->size(), 1U);
  EXPECT_EQ(peers->front().members[0], (net::PeerMember{id_of(1), "one", "198.18.0.2"}));
  ASSERT_TRUE(drop_members(home(), *network, id_of(1)));
  EXPECT_EQ(find_private_network(home(), "blue")->untold, (std::vector{id_of(1), id_of(2)}));
  // The one that left has not handed its address on.
  make_sandbox(id_of(3), "three");
  ASSERT_TRUE(add_member(home(), *network, id_of(3)));
  EXPECT_EQ(address_of(*network, network->members.back()), "198.18.0.4");
  EXPECT_TRUE(networks_of(home(), id_of(1))->empty());
}

TEST_F(PrivateNetworks, ASandboxThatIsGoneIsNoMember) {
  make_sandbox(id_of(1), "one");
  make_sandbox(id_of(2), "two");
  auto network = make_private_network(home(), "blue");
  ASSERT_TRUE(add_member(home(), *network, id_of(1)));
  ASSERT_TRUE(add_member(home(), *network, id_of(2)));
  ASSERT_TRUE(remove_tree(home().dir(), Home::sandbox(id_of(1))));
  EXPECT_EQ(find_private_network(home(), "blue")->members.size(), 1U);
  EXPECT_EQ(sweep_networks(home()), 1U);
  const auto text = read_file(home().dir(), "networks/" + network->id + "/record.json", kMaxPrivateNetwork);
  EXPECT_EQ(decode_private_network(*text)->members.size(), 1U);
  EXPECT_EQ(sweep_networks(home()), 0U);
}

TEST_F(PrivateNetworks, WhatAKilledMakerLeftIsSwept) {
  ASSERT_TRUE(make_dirs(path_ + "/networks/" + id_of(7)));
  EXPECT_TRUE(all_networks(home())->empty());
  EXPECT_EQ(make_private_network(home(), "blue")->subnet, kSubnetBase);
  {
    const auto lock = lock_networks(home());
    EXPECT_EQ(sweep_networks(home()), 0U);
  }
  EXPECT_EQ(sweep_networks(home()), 1U);
  EXPECT_EQ(all_networks(home())->size(), 1U);
}

TEST_F(PrivateNetworks, ADamagedRecordIsTold) {
  ASSERT_TRUE(make_dirs(path_ + "/networks/" + id_of(7)));
  ASSERT_TRUE(replace_file(home().dir(), "networks/" + id_of(7) + "/record.json", "{", Sync::kNo));
  const auto all = all_networks(home());
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, ErrorCode::kIntegrity);
  EXPECT_EQ(sweep_networks(home()), 0U);
}

TEST_F(PrivateNetworks, ANetworkIsFullAtSomePoint) {
  auto network = make_private_network(home(), "blue");
  for (unsigned i = 0; i < net::kMaxMembers; ++i) {
    ASSERT_TRUE(make_dirs(path_ + "/" + Home::sandbox(id_of(i))));
    ASSERT_TRUE(add_member(home(), *network, id_of(i))) << i;
  }
  const auto full = add_member(home(), *network, id_of(999));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kLimit);
  ASSERT_TRUE(drop_members(home(), *network, id_of(17)));
  ASSERT_TRUE(make_dirs(path_ + "/" + Home::sandbox(id_of(999))));
  ASSERT_TRUE(add_member(home(), *network, id_of(999)));
  EXPECT_EQ(network->members.back().host, 17 + kFirstHost);
}

}  // namespace
}  // namespace drupe
