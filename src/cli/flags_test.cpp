#include "cli/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace drupe::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Fixture : testing::Test {
  FlagSet set{"run [FLAGS] IMAGE", "Runs."};
  bool input = false, tty = false;
  std::vector<std::string> env;
  std::string dir;
  Fixture() {
    set.flag("-i, --interactive", input, "in")
        .flag("-t, --tty", tty, "tty")
        .list("-e, --env", "KEY=VALUE", env, "env")
        .text("-w, --workdir", "PATH", dir, "dir")
        .refused("-v, --volume", true, "is not offered yet");
  }
};

TEST_F(Fixture, JoinedShortFlagsAndValuesInEveryForm) {
  auto plain = set.parse({"-it", "-eA=1", "-e", "B=[x]", "--env=C={}", "--env", "-D=1", "-w=/x", "image"},
                         Words::kFirstEndsFlags);
  ASSERT_TRUE(plain);
  EXPECT_TRUE(input);
  EXPECT_TRUE(tty);
  EXPECT_THAT(env, ElementsAre("A=1", "B=[x]", "C={}", "-D=1"));
  EXPECT_EQ(dir, "/x");
  EXPECT_THAT(*plain, ElementsAre("image"));
}

TEST_F(Fixture, WhatFollowsTheFirstWordBelongsToTheCommand) {
  auto plain = set.parse({"-i", "image", "-t", "--env", "--", "--help"}, Words::kFirstEndsFlags);
  ASSERT_TRUE(plain);
  EXPECT_FALSE(tty);
  EXPECT_THAT(*plain, ElementsAre("image", "-t", "--env", "--", "--help"));
}

TEST_F(Fixture, FlagsMayFollowWordsWhereNoCommandIsRun) {
  auto plain = set.parse({"one", "-t", "two", "--", "-i"}, Words::kAnywhere);
  ASSERT_TRUE(plain);
  EXPECT_TRUE(tty);
  EXPECT_FALSE(input);
  EXPECT_THAT(*plain, ElementsAre("one", "two", "-i"));
}

TEST_F(Fixture, BytesPassUnchanged) {
  auto plain = set.parse({"-e", "A=\xff\xfe", "\xc3\x28"}, Words::kFirstEndsFlags);
  ASSERT_TRUE(plain);
  EXPECT_THAT(env, ElementsAre("A=\xff\xfe"));
  EXPECT_THAT(*plain, ElementsAre("\xc3\x28"));
}

TEST_F(Fixture, UnknownFlagsAndMissingValuesAreSentences) {
  auto unknown = set.parse({"--bogus=1"});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(unknown.error().message, HasSubstr("--bogus"));
  EXPECT_THAT(unknown.error().next_step, HasSubstr("drupe run --help"));
  EXPECT_FALSE(set.parse({"-x"}));
  EXPECT_FALSE(set.parse({"-ix"}));
  EXPECT_FALSE(set.parse({"-e"}));
  EXPECT_FALSE(set.parse({"--workdir"}));
  EXPECT_FALSE(set.parse({"--tty=maybe"}));
}

TEST_F(Fixture, BooleansMayBeSetFalse) {
  ASSERT_TRUE(set.parse({"--tty", "--tty=false"}));
  EXPECT_FALSE(tty);
}

TEST_F(Fixture, RefusedFlagsSayWhy) {
  auto refused = set.parse({"-v", "/a:/b"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("not offered"));
}

TEST_F(Fixture, HelpListsFlagsButNotRefusedOnes) {
  EXPECT_TRUE(set.parse({"--help", "--bogus"}));
  EXPECT_TRUE(set.wants_help());
  EXPECT_THAT(set.help(), HasSubstr("-e, --env KEY=VALUE"));
  EXPECT_THAT(set.help(), testing::Not(HasSubstr("volume")));
}

}  // namespace
}  // namespace drupe::cli
