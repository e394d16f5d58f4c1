#include "engine/names.h"

#include <unistd.h>

#include "engine/testing/temp_home.h"

namespace drupe {
namespace {

using NamesTest = TempHome;

TEST(NameRule, AcceptsAndRefuses) {
  for (const char* good : {"a", "web", "A1", "0", "my_box.2-x"}) EXPECT_TRUE(check_name(good)) << good;
  EXPECT_TRUE(check_name(std::string(128, 'x')));
  for (const char* bad : {"", ".", "..", "-x", "_x", "a/b", "a b", "é", "a;b"}) {
    const auto checked = check_name(bad);
    ASSERT_FALSE(checked) << bad;
    EXPECT_EQ(checked.error().code, ErrorCode::kInvalidArgument);
    EXPECT_FALSE(checked.error().next_step.empty());
  }
  EXPECT_FALSE(check_name(std::string(129, 'x')));
  EXPECT_FALSE(check_name(std::string("a\0b", 3)));
}

TEST(NameRule, InventsUsableNames) {
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(check_name(invent_name()));
}

TEST(Prefix, FindsTheOnlyOne) {
  const std::vector<std::string> ids = {"aaaaaaaaaaaa", "aaabbbbbbbbb", "cccccccccccc"};
  EXPECT_EQ(*match_prefix(ids, "c"), "cccccccccccc");
  EXPECT_EQ(*match_prefix(ids, "aaaa"), "aaaaaaaaaaaa");
  EXPECT_EQ(match_prefix(ids, "d").error().code, ErrorCode::kNotFound);
  const auto many = match_prefix(ids, "aaa");
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(many.error().message.find("aaabbbbbbbbb"), std::string::npos);
  EXPECT_EQ(*match_prefix({"web", "web2"}, "web"), "web");
}

TEST_F(NamesTest, ResolvesNameIdAndPrefixes) {
  const auto record = make_sandbox("web", SandboxState::kExited);
  EXPECT_EQ(*resolve_sandbox(home(), "web"), record.id);
  EXPECT_EQ(*resolve_sandbox(home(), record.id), record.id);
  EXPECT_EQ(*resolve_sandbox(home(), record.id.substr(0, 4)), record.id);
  EXPECT_EQ(*resolve_sandbox(home(), "we"), record.id);
  for (const char* bad : {"x-none", "", "../web", "we\n"})
    EXPECT_EQ(resolve_sandbox(home(), bad).error().code, ErrorCode::kNotFound) << bad;
}

TEST_F(NamesTest, AnExactNameWinsOverAnIdPrefix) {
  const auto first = make_sandbox("one", SandboxState::kExited);
  const auto second = make_sandbox(first.id.substr(0, 3), SandboxState::kExited);
  EXPECT_EQ(*resolve_sandbox(home(), first.id.substr(0, 3)), second.id);
}

TEST_F(NamesTest, ATakenNameIsRefused) {
  const auto record = make_sandbox("web", SandboxState::kExited);
  const auto taken = take_name(home(), "web", "0123456789ab");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kAlreadyExists);
  EXPECT_NE(taken.error().message.find(record.id), std::string::npos);
  EXPECT_TRUE(take_name(home(), "web", record.id));
}

TEST_F(NamesTest, StaleLinksAreTakenOver) {
  // A process was killed between the link and the directory.
  ASSERT_EQ(::symlinkat("0123456789ab", home().dir(), "names/web"), 0);
  EXPECT_FALSE(*lookup_name(home(), "web"));
  const auto record = make_sandbox("web", SandboxState::kExited);
  EXPECT_EQ(**lookup_name(home(), "web"), record.id);
  // A process was killed in a rename, before the record was written.
  ASSERT_EQ(::symlinkat(record.id.c_str(), home().dir(), "names/next"), 0);
  EXPECT_FALSE(*lookup_name(home(), "next"));
  EXPECT_TRUE(take_name(home(), "next", "aaaaaaaaaaaa"));
  // A foreign link is none.
  ASSERT_EQ(::symlinkat("../../etc", home().dir(), "names/evil"), 0);
  EXPECT_FALSE(*lookup_name(home(), "evil"));
}

TEST_F(NamesTest, OneThatRemovesItselfHoldsItsNameNoLonger) {
  auto record = make_sandbox("web", SandboxState::kExited);
  record.auto_remove = true;
  write(record);
  EXPECT_FALSE(*lookup_name(home(), "web"));
  ASSERT_EQ(::unlinkat(home().dir(), (Home::sandbox(record.id) + "/" + kRecordFile).c_str(), 0), 0);
  EXPECT_FALSE(*lookup_name(home(), "web"));
  EXPECT_TRUE(take_name(home(), "web", "0123456789ab"));
}

TEST_F(NamesTest, DropsOnlyItsOwnLink) {
  const auto record = make_sandbox("web", SandboxState::kExited);
  drop_name(home(), "web", "0123456789ab");
  EXPECT_TRUE(exists("names/web"));
  drop_name(home(), "web", record.id);
  EXPECT_FALSE(exists("names/web"));
}

}  // namespace
}  // namespace drupe
