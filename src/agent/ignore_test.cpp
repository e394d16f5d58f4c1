#include "agent/ignore.h"

#include <chrono>
#include <string>

#include <gtest/gtest.h>

namespace drupe::agent {
namespace {

TEST(GlobMatch, FollowsTheShell) {
  EXPECT_TRUE(glob_match("*.o", "a.o"));
  EXPECT_FALSE(glob_match("*.o", "a.oo"));
  EXPECT_FALSE(glob_match("*.o", "dir/a.o"));
  EXPECT_TRUE(glob_match("a?c", "abc"));
  EXPECT_FALSE(glob_match("a?c", "a/c"));
  EXPECT_TRUE(glob_match("[a-c]x", "bx"));
  EXPECT_FALSE(glob_match("[!a-c]x", "bx"));
  EXPECT_TRUE(glob_match("[]]", "]"));
  EXPECT_FALSE(glob_match("[ab", "a"));
  EXPECT_TRUE(glob_match("\\*", "*"));
  EXPECT_FALSE(glob_match("\\*", "x"));
}

TEST(GlobMatch, TwoStarsCrossDirectories) {
  EXPECT_TRUE(glob_match("**/x", "x"));
  EXPECT_TRUE(glob_match("**/x", "a/b/x"));
  EXPECT_TRUE(glob_match("a/**", "a/b/c"));
  EXPECT_TRUE(glob_match("a/**/c", "a/c"));
  EXPECT_TRUE(glob_match("a/**/c", "a/b/b/c"));
  EXPECT_FALSE(glob_match("a/**/c", "ab/c"));
}

TEST(GlobMatch, HostilePatternsEnd) {
  std::string pattern;
  for (int i = 0; i < 60; ++i) pattern += "a*";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(glob_match(pattern + "b", std::string(200, 'a')));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(IgnoreRules, LastMatchDecides) {
  const IgnoreRules rules({"# comment", "", "*.log", "!keep.log", "build/", "/top", "docs/*.tmp"});
  EXPECT_TRUE(rules.ignores("a/b.log", false));
  EXPECT_FALSE(rules.ignores("a/keep.log", false));
  EXPECT_TRUE(rules.ignores("a/build", true));
  EXPECT_FALSE(rules.ignores("a/build", false));
  EXPECT_TRUE(rules.ignores("top", false));
  EXPECT_FALSE(rules.ignores("a/top", false));
  EXPECT_TRUE(rules.ignores("docs/x.tmp", false));
  EXPECT_FALSE(rules.ignores("a/docs/x.tmp", false));
  EXPECT_FALSE(rules.ignores("other", false));
}

}  // namespace
}  // namespace drupe::agent
