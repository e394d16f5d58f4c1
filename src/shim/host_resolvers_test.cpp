#include "shim/host_resolvers.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace drupe {
namespace {

namespace fs = std::filesystem;

class ResolverWatchTest : public ::testing::Test {
 protected:
  ResolverWatchTest() : loop_(EventLoop::create().value()) {
    std::string name = (fs::temp_directory_path() / "drupe-resolvers-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
    fs::create_directories(root_ / "etc");
    fs::create_directories(root_ / "run");
  }
  ~ResolverWatchTest() override {
    watch_.reset();
    fs::remove_all(root_);
  }
  void start() {
    watch_ = ResolverWatch::create(*loop_, file().string(), [this] { ++changes_; }).value();
  }
  /// Whether a change is told because of `change`.
  bool tells(const std::function<void()>& change) {
    const int before = changes_;
    change();
    return *loop_->run_until([&] { return changes_ > before; }, Clock::now() + std::chrono::seconds(20));
  }
  [[nodiscard]] fs::path file() const { return root_ / "etc" / "resolv.conf"; }
  static void write(const fs::path& path) { std::ofstream(path) << "nameserver 192.0.2.1\n"; }
  void replace(const fs::path& path) {
    write(root_ / "new");
    fs::rename(root_ / "new", path);
  }

  std::unique_ptr<EventLoop> loop_;
  fs::path root_;
  std::unique_ptr<ResolverWatch> watch_;
  int changes_ = 0;
};

TEST_F(ResolverWatchTest, AFileThatIsWrittenReplacedRemovedAndMade) {
  write(file());
  start();
  EXPECT_TRUE(tells([&] { write(file()); }));
  EXPECT_TRUE(tells([&] { replace(file()); }));
  EXPECT_TRUE(tells([&] { write(file()); }));
  EXPECT_TRUE(tells([&] { fs::remove(file()); }));
  EXPECT_TRUE(tells([&] { replace(file()); }));
  EXPECT_TRUE(tells([&] { write(file()); }));
}

TEST_F(ResolverWatchTest, WhatALinkLeadsTo) {
  const fs::path target = root_ / "run" / "stub.conf";
  fs::create_symlink("../run/stub.conf", file());  // leads nowhere yet
  start();
  EXPECT_TRUE(tells([&] { replace(target); }));
  EXPECT_TRUE(tells([&] { write(target); }));
  EXPECT_TRUE(tells([&] { replace(target); }));
  // Another target.
  write(root_ / "run" / "other.conf");
  EXPECT_TRUE(tells([&] {
    fs::create_symlink(root_ / "run" / "other.conf", root_ / "new");
    fs::rename(root_ / "new", file());
  }));
  EXPECT_TRUE(tells([&] { replace(root_ / "run" / "other.conf"); }));
}

TEST_F(ResolverWatchTest, WhoeverIsMountedOverItOrHardLinked) {
  write(root_ / "elsewhere");
  fs::create_hard_link(root_ / "elsewhere", file());
  start();
  EXPECT_TRUE(tells([&] { write(root_ / "elsewhere"); }));
}

TEST_F(ResolverWatchTest, OtherFilesOfTheDirectoryAreNoChange) {
  write(file());
  start();
  write(root_ / "etc" / "passwd");
  EXPECT_TRUE(tells([&] { write(file()); }));
  EXPECT_EQ(changes_, 1);
}

TEST(Resolvers, OfAFile) {
  const auto host = parse_resolv_conf(
      "# comment\ndomain old.example\nsearch a.example b.example\nnameserver 192.0.2.1\n"
      "nameserver\nnameserver nonsense\nnameserver 2001:db8::1\noptions edns0\n"
      "nameserver 192.0.2.3\nnameserver 192.0.2.4\n");
  EXPECT_EQ(host.resolvers, (std::vector<std::string>{"192.0.2.1", "2001:db8::1", "192.0.2.3"}));
  EXPECT_EQ(host.search, (std::vector<std::string>{"a.example", "b.example"}));
  EXPECT_TRUE(parse_resolv_conf("").resolvers.empty());
}

TEST(Resolvers, WithoutAnyThereIsOneOnThisMachine) {
  EXPECT_EQ(resolvers_of("search example.com\n"), std::vector<std::string>{"127.0.0.1"});
  EXPECT_EQ(resolvers_of("nameserver 192.0.2.1\nnameserver x\n"), std::vector<std::string>{"192.0.2.1"});
}

}  // namespace
}  // namespace drupe
