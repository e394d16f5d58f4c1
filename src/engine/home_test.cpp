#include "engine/home.h"

#include <atomic>
#include <thread>

#include <sys/stat.h>
#include <sys/time.h>

#include "engine/testing/temp_home.h"

namespace drupe {
namespace {

using HomeTest = TempHome;

TEST_F(HomeTest, IsClosedToOthersAndVersioned) {
  struct stat found{};
  ASSERT_EQ(::stat(path_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700U);
  EXPECT_EQ(*read_file(home().dir(), "VERSION", 64), "1\n");
  EXPECT_TRUE(exists("sandboxes"));
  EXPECT_TRUE(Home::open(path_));
}

TEST_F(HomeTest, ClosesADirectoryThatOthersCouldRead) {
  ASSERT_EQ(::chmod(path_.c_str(), 0755), 0);
  EXPECT_TRUE(Home::open(path_));
  struct stat found{};
  ASSERT_EQ(::stat(path_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700U);
}

TEST_F(HomeTest, RefusesANewerFormat) {
  ASSERT_TRUE(replace_file(home().dir(), "VERSION", "2\n", Sync::kNo));
  const auto opened = Home::open(path_);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(opened.error().message.find("newer"), std::string::npos);
}

TEST_F(HomeTest, RefusesADamagedVersion) {
  ASSERT_TRUE(replace_file(home().dir(), "VERSION", "x\n", Sync::kNo));
  const auto opened = Home::open(path_);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kIntegrity);
}

TEST_F(HomeTest, KnowsIds) {
  EXPECT_TRUE(is_sandbox_id("0123456789ab"));
  for (const char* bad : {"", "0123456789a", "0123456789abc", "0123456789aB", "../456789abc"})
    EXPECT_FALSE(is_sandbox_id(bad)) << bad;
}

TEST_F(HomeTest, SweepsScratchThatNobodyHolds) {
  std::string kept;
  {
    auto held = home().make_scratch("sandbox");
    ASSERT_TRUE(held);
    auto left = home().make_scratch("base");
    ASSERT_TRUE(left);
    left->lock.reset();
    kept = held->path;
    EXPECT_EQ(home().sweep_scratch(), 1U);
    EXPECT_TRUE(exists(kept));
    EXPECT_FALSE(exists(left->path));
  }
  EXPECT_EQ(home().sweep_scratch(), 1U);
  EXPECT_FALSE(exists(kept));
}

TEST_F(HomeTest, LeavesAYoungDirectoryWithoutLockToItsMaker) {
  ASSERT_TRUE(make_dir_at(home().dir(), "tmp/sandbox-young"));
  ASSERT_TRUE(make_dir_at(home().dir(), "tmp/sandbox-old"));
  const timeval old[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(::utimes((path_ + "/tmp/sandbox-old").c_str(), old), 0);
  EXPECT_EQ(home().sweep_scratch(), 1U);
  EXPECT_TRUE(exists("tmp/sandbox-young"));
  EXPECT_FALSE(exists("tmp/sandbox-old"));
}

TEST_F(HomeTest, DiscardsATreeAndAMissingOne) {
  ASSERT_TRUE(make_dir_at(home().dir(), "sandboxes/0123456789ab"));
  ASSERT_TRUE(replace_file(home().dir(), "sandboxes/0123456789ab/file", "x", Sync::kNo));
  EXPECT_TRUE(home().discard("sandboxes/0123456789ab"));
  EXPECT_FALSE(exists("sandboxes/0123456789ab"));
  EXPECT_TRUE(home().names_in("tmp")->empty());
  EXPECT_TRUE(home().discard("sandboxes/0123456789ab"));
}

TEST_F(HomeTest, LockExcludesAndEndsWithItsDescriptor) {
  auto first = try_lock(home().dir(), "locks/x");
  ASSERT_TRUE(first);
  ASSERT_TRUE(first->valid());
  EXPECT_TRUE(*is_locked(home().dir(), "locks/x"));
  auto second = try_lock(home().dir(), "locks/x");
  ASSERT_TRUE(second);
  EXPECT_FALSE(second->valid());
  const auto waited = lock_file(home().dir(), "locks/x", Clock::now() + std::chrono::milliseconds(20), "it");
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, ErrorCode::kBusy);
  first->reset();
  EXPECT_FALSE(*is_locked(home().dir(), "locks/x"));
  EXPECT_TRUE(try_lock(home().dir(), "locks/x")->valid());
  EXPECT_FALSE(*is_locked(home().dir(), "locks/missing"));
}

// As `drupe ps` beside `drupe create`.
TEST_F(HomeTest, ASweepTakesNothingFromWhoIsMakingIt) {
  std::atomic<bool> stop = false;
  std::thread sweeper([&] {
    while (!stop) home().sweep_scratch();
  });
  int made = 0;
  for (int i = 0; i < 500; ++i) {
    auto scratch = home().make_scratch("test");
    if (!scratch) break;
    if (!replace_file(scratch->dir.get(), "file", "x", Sync::kNo)) break;
    if (!remove_tree(home().dir(), scratch->path)) break;
    ++made;
  }
  stop = true;
  sweeper.join();
  EXPECT_EQ(made, 500);
}

}  // namespace
}  // namespace drupe
