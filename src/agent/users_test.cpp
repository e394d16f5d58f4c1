#include "agent/users.h"

#include <string>

#include <gtest/gtest.h>

namespace drupe::agent {
namespace {

constexpr std::string_view kPasswd =
    "root:x:0:0:root:/root:/bin/bash\n"
    "broken line\n"
    "bad:x:notanumber:1::/:/bin/sh\n"
    "huge:x:4294967295:1::/:/bin/sh\n"
    "app:x:1000:1001:App,,,:/home/app:/bin/sh\n"
    "nohome:x:1002:1002:::/bin/sh\n"
    "42:x:77:77::/home/numeric:/bin/sh";
constexpr std::string_view kGroup =
    "root:x:0:\n"
    "app:x:1001:\n"
    "sudo:x:27:other,app\n"
    "apple:x:28:apple\n"
    "docker:x:999:app\n";

UserIds find(std::string_view spec) {
  auto ids = find_user(spec, kPasswd, kGroup);
  EXPECT_TRUE(ids) << spec;
  return ids ? *ids : UserIds{};
}

TEST(FindUser, EmptyIsRoot) {
  const auto ids = find("");
  EXPECT_EQ(ids.uid, 0U);
  EXPECT_EQ(ids.gid, 0U);
  EXPECT_EQ(ids.home, "/root");
  EXPECT_EQ(find_user("", "", "")->home, "/root");
}

TEST(FindUser, NameBringsGroupsAndHome) {
  const auto ids = find("app");
  EXPECT_EQ(ids.uid, 1000U);
  EXPECT_EQ(ids.gid, 1001U);
  EXPECT_EQ(ids.groups, (std::vector<std::uint32_t>{27, 999}));
  EXPECT_EQ(ids.home, "/home/app");
}

TEST(FindUser, NumberOfAKnownUserIsThatUser) {
  const auto ids = find("1000");
  EXPECT_EQ(ids.name, "app");
  EXPECT_EQ(ids.gid, 1001U);
  EXPECT_EQ(ids.groups.size(), 2U);
}

TEST(FindUser, UnknownNumberIsTakenAsItIs) {
  const auto ids = find("4711");
  EXPECT_EQ(ids.uid, 4711U);
  EXPECT_EQ(ids.gid, 0U);
  EXPECT_EQ(ids.home, "/");
  EXPECT_EQ(find("4294967294").uid, 4294967294U);
}

TEST(FindUser, NamedGroupReplacesTheOthers) {
  const auto ids = find("app:sudo");
  EXPECT_EQ(ids.gid, 27U);
  EXPECT_TRUE(ids.groups.empty());
  EXPECT_EQ(find("1000:5").gid, 5U);
  EXPECT_EQ(find("4711:4712").gid, 4712U);
}

TEST(FindUser, NumericNameWins) {
  EXPECT_EQ(find("42").uid, 77U);
}

TEST(FindUser, EmptyHomeIsRoot) {
  EXPECT_EQ(find("nohome").home, "/");
}

TEST(FindUser, RefusesWhatIsNeitherNameNorNumber) {
  for (const char* spec : {"nobody-here", "0x0", "-1", "4294967295", "99999999999", "1000:", "root:nope",
                           ":0", " 0", "1000:0x1", "bad", "huge"})
    EXPECT_FALSE(find_user(spec, kPasswd, kGroup)) << spec;
}

}  // namespace
}  // namespace drupe::agent
