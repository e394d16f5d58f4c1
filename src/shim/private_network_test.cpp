#include "shim/private_network.h"

#include <array>
#include <cstdlib>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/pass_fds.h"
#include "protocol/net_peers.h"

namespace drupe {
namespace {

constexpr const char* kNet = "00000000000a";
constexpr const char* kOwn = "000000000001";
constexpr const char* kPeer = "000000000002";
constexpr const char* kStranger = "000000000003";

PrivateNetwork example() {
  PrivateNetwork network;
  network.id = kNet;
  network.name = "blue";
  network.subnet = kSubnetBase + 256;
  network.created_ns = 17;
  network.members = {{kOwn, 2, {"web", "web.blue"}}, {kPeer, 254}};
  network.untold = {kStranger};
  return network;
}

TEST(PrivateNetworkRecord, ComesBackWhole) {
  const auto back = decode_private_network(encode_private_network(example()));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, example());
}

TEST(PrivateNetworkRecord, DamageIsTold) {
  const std::string whole = encode_private_network(example());
  for (std::size_t size = 0; size + 1 < whole.size(); ++size)
    EXPECT_FALSE(decode_private_network(std::string_view(whole).substr(0, size))) << size;
  const auto refused = [](auto change) {
    PrivateNetwork network = example();
    change(network);
    const auto read = decode_private_network(encode_private_network(network));
    return !read && read.error().code == ErrorCode::kIntegrity;
  };
  EXPECT_TRUE(refused([](auto& network) { network.id = "../../../etc"; }));
  EXPECT_TRUE(refused([](auto& network) { network.name = ""; }));
  EXPECT_TRUE(refused([](auto& network) { network.subnet = 0x0a000000; }));
  EXPECT_TRUE(refused([](auto& network) { network.subnet += 1; }));
  EXPECT_TRUE(refused([](auto& network) { network.subnet = kSubnetBase + 256 * kSubnets; }));
  EXPECT_TRUE(refused([](auto& network) { network.members[0].host = 1; }));
  EXPECT_TRUE(refused([](auto& network) { network.members[0].host = 255; }));
  EXPECT_TRUE(refused([](auto& network) { network.members[0].host = 254; }));
  EXPECT_TRUE(refused([](auto& network) { network.members[0].sandbox = kPeer; }));
  EXPECT_TRUE(refused([](auto& network) { network.members[0].sandbox = "x"; }));
  EXPECT_TRUE(refused([](auto& network) { network.members[0].aliases = {"a", "b", "c"}; }));
  EXPECT_TRUE(refused([](auto& network) { network.members[0].aliases = {""}; }));
  EXPECT_TRUE(refused([](auto& network) { network.members[0].aliases = {std::string(128, 'a')}; }));
  EXPECT_TRUE(refused([](auto& network) { network.untold = {"../x"}; }));
  EXPECT_TRUE(refused([](auto& network) { network.untold.assign(1000, kOwn); }));
}

/// A home with two members and a stranger; the working directory is kOwn's.
class ConnectToPeer : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/drupe-peer-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    home_ = path;
    before_ = *open_at(AT_FDCWD, ".", O_RDONLY | O_DIRECTORY);
    for (const char* id : {kOwn, kPeer, kStranger}) ASSERT_TRUE(make_dirs(home_ + "/sandboxes/" + id));
    ASSERT_TRUE(make_dirs(home_ + "/networks/" + kNet));
    write(example());
    listener_ = listen_as(kPeer);
    ASSERT_EQ(::chdir((home_ + "/sandboxes/" + kOwn).c_str()), 0);
  }
  void TearDown() override {
    ASSERT_EQ(::fchdir(before_.get()), 0);
    ASSERT_TRUE(remove_tree(AT_FDCWD, home_));
  }
  void write(const PrivateNetwork& network) {
    ASSERT_TRUE(replace_file(AT_FDCWD, home_ + "/networks/" + kNet + "/" + kNetworkRecordFile,
                             encode_private_network(network), Sync::kNo));
  }
  UniqueFd listen_as(const char* id) {
    const UniqueFd here = *open_at(AT_FDCWD, ".", O_RDONLY | O_DIRECTORY);
    EXPECT_EQ(::chdir((home_ + "/sandboxes/" + id).c_str()), 0);
    auto listener = listen_for_peers(kPeerSocketFile);
    EXPECT_TRUE(listener);
    EXPECT_EQ(::fchdir(here.get()), 0);
    return std::move(*listener);
  }
  static Result<UniqueFd> connect(const std::string& network, const std::string& sandbox) {
    return connect_to_peer(kOwn, net::PeerId{network, sandbox}.encode());
  }
  static ErrorCode refusal(const std::string& network, const std::string& sandbox) {
    const auto made = connect(network, sandbox);
    return made ? ErrorCode::kHost : made.error().code;
  }

  std::string home_;
  UniqueFd before_, listener_;
};

TEST_F(ConnectToPeer, SaysFirstWhoConnects) {
  const auto made = connect(kNet, kPeer);
  ASSERT_TRUE(made) << made.error().message;
  const UniqueFd accepted(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const auto first = receive_with_fds(accepted.get(), net::kMaxPeerId);
  ASSERT_TRUE(first);
  const auto who = net::PeerId::decode(as_bytes(first->bytes));
  ASSERT_TRUE(who);
  EXPECT_EQ(*who, (net::PeerId{kNet, kOwn}));
}

TEST_F(ConnectToPeer, OnlyMembersOfOneNetworkMeet) {
  const UniqueFd stranger = listen_as(kStranger);
  EXPECT_EQ(refusal(kNet, kStranger), ErrorCode::kPermission);
  EXPECT_EQ(refusal("00000000000b", kPeer), ErrorCode::kNotFound);
  PrivateNetwork without = example();
  without.members.erase(without.members.begin());
  write(without);
  EXPECT_EQ(refusal(kNet, kPeer), ErrorCode::kPermission);
  // A record that lies in the wrong place.
  PrivateNetwork other = example();
  other.id = "00000000000b";
  write(other);
  EXPECT_EQ(refusal(kNet, kPeer), ErrorCode::kPermission);
}

TEST_F(ConnectToPeer, WhatIsNoIdIsNoPath) {
  for (const char* text : {"", ".", "../sandboxes", "00000000000A", "00000000000a/", "/etc"}) {
    EXPECT_EQ(refusal(text, kPeer), ErrorCode::kInvalidArgument) << text;
    EXPECT_EQ(refusal(kNet, text), ErrorCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(connect_to_peer(kOwn, "x"));
}

TEST_F(ConnectToPeer, AMemberThatDoesNotRunIsUnavailable) {
  listener_.reset();
  EXPECT_EQ(refusal(kNet, kPeer), ErrorCode::kUnavailable);
  ASSERT_EQ(::unlink((home_ + "/sandboxes/" + kPeer + "/" + kPeerSocketFile).c_str()), 0);
  EXPECT_EQ(refusal(kNet, kPeer), ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace drupe
