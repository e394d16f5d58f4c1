#include "engine/guest_assets.h"

#include <sys/stat.h>

#include "engine/shim_launch.h"
#include "engine/testing/temp_home.h"

namespace drupe {
namespace {

class AssetsTest : public TempHome {
 protected:
  AssetsTest() : guest_(path_ + "/guest") { EXPECT_TRUE(make_dirs(guest_)); }
  void put(const char* name, std::string_view bytes) {
    ASSERT_TRUE(replace_file(AT_FDCWD, guest_ + "/" + name, bytes, Sync::kNo));
  }
  std::string guest_;
};

TEST_F(AssetsTest, AreKeptUnderTheirDigest) {
  put(kKernelFile, "kernel");
  put(kInitramfsFile, "initramfs");
  const auto first = provide_guest_assets(home(), guest_);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(*read_file(home().dir(), first->directory + "/" + kKernelFile, 64), "kernel");
  EXPECT_EQ(*read_file(home().dir(), first->directory + "/" + kInitramfsFile, 64), "initramfs");
  EXPECT_EQ(provide_guest_assets(home(), guest_)->digest, first->digest);
  put(kInitramfsFile, "another");
  const auto second = provide_guest_assets(home(), guest_);
  ASSERT_TRUE(second);
  EXPECT_NE(second->digest, first->digest);
  EXPECT_EQ(*read_file(home().dir(), first->directory + "/" + kInitramfsFile, 64), "initramfs");
  EXPECT_TRUE(home().names_in("tmp")->empty());
}

TEST_F(AssetsTest, AMissingKernelIsNamed) {
  put(kKernelFile, "kernel");
  const auto missing = provide_guest_assets(home(), guest_);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().next_step.find("guest.sh"), std::string::npos);
}

TEST_F(AssetsTest, CopiesKeepHoles) {
  const auto fd = open_at(home().dir(), "sparse", O_RDWR | O_CREAT);
  ASSERT_TRUE(fd);
  ASSERT_EQ(::ftruncate(fd->get(), 64 << 20), 0);
  ASSERT_TRUE(pwrite_all(fd->get(), "data", 32 << 20));
  ASSERT_TRUE(copy_file(home().dir(), "sparse", home().dir(), "copy", 0400));
  struct stat found{};
  ASSERT_EQ(::fstatat(home().dir(), "copy", &found, 0), 0);
  EXPECT_EQ(found.st_size, 64 << 20);
  EXPECT_LT(found.st_blocks * 512, 1 << 20);
  const auto copy = open_at(home().dir(), "copy", O_RDONLY);
  char bytes[4];
  ASSERT_EQ(::pread(copy->get(), bytes, 4, 32 << 20), 4);
  EXPECT_EQ(std::string_view(bytes, 4), "data");
}

TEST_F(AssetsTest, AShimThatDiesSaysHow) {
  Installation installation;
  installation.shim_path = "/bin/false";
  const auto record = make_sandbox("web", SandboxState::kCreated);
  const auto dir = home().open_sandbox(record.id);
  ASSERT_TRUE(dir);
  const auto lock = lock_sandbox(record.id);
  auto shim = StartingShim::start(installation, dir->get(), lock.get(), {});
  ASSERT_TRUE(shim) << shim.error().message;
  const auto status = shim->finish();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("exit status 1"), std::string::npos) << status.error().message;
}

TEST_F(AssetsTest, AMissingShimIsNamed) {
  Installation installation;
  installation.shim_path = path_ + "/nothing";
  const auto record = make_sandbox("web", SandboxState::kCreated);
  const auto dir = home().open_sandbox(record.id);
  const auto lock = lock_sandbox(record.id);
  const auto shim = StartingShim::start(installation, dir->get(), lock.get(), {});
  ASSERT_FALSE(shim);
  EXPECT_NE(to_string(shim.error()).find("is installed"), std::string::npos);
}

}  // namespace
}  // namespace drupe
