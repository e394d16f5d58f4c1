// A home in a directory of its own that goes with the test.
#pragma once

#include <cstdlib>
#include <string>

#include <fcntl.h>

#include <gtest/gtest.h>

#include "base/ids.h"
#include "engine/file_lock.h"
#include "engine/home.h"
#include "engine/names.h"
#include "engine/sandbox_files.h"

namespace drupe {

class TempHome : public testing::Test {
 protected:
  TempHome() {
    const char* base = std::getenv("TMPDIR");
    path_ = std::string(base == nullptr ? "/tmp" : base) + "/drupe-engine-test-" + random_id();
    auto home = Home::open(path_);
    EXPECT_TRUE(home) << home.error().message;
    if (home) home_.emplace(std::move(*home));
  }
  ~TempHome() override { EXPECT_TRUE(remove_tree(AT_FDCWD, path_)); }

  [[nodiscard]] Home& home() { return *home_; }
  [[nodiscard]] bool exists(const std::string& name) const {
    return ::faccessat(home_->dir(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  }

  /// A sandbox's directory with its record, lock file and name.
  SandboxRecord make_sandbox(const std::string& name, SandboxState state) {
    SandboxRecord record;
    record.id = random_id();
    record.name = name;
    record.state = state;
    record.shape = {1, 512};
    record.disk_chain = {kImageFile};
    record.image_id = "image";
    const auto dir = make_dir_at(home_->dir(), Home::sandbox(record.id));
    EXPECT_TRUE(dir);
    EXPECT_TRUE(write_record(dir->get(), record));
    EXPECT_TRUE(replace_file(dir->get(), kLockFile, "", Sync::kNo));
    EXPECT_TRUE(take_name(*home_, name, record.id));
    return record;
  }
  void write(const SandboxRecord& record) {
    const auto dir = home_->open_sandbox(record.id);
    ASSERT_TRUE(dir);
    EXPECT_TRUE(write_record(dir->get(), record));
  }
  UniqueFd lock_sandbox(const std::string& id) {
    auto lock = try_lock(home_->dir(), Home::sandbox(id) + "/" + kLockFile);
    EXPECT_TRUE(lock);
    EXPECT_TRUE(lock->valid());
    return std::move(*lock);
  }

  std::string path_;
  std::optional<Home> home_;
};

}  // namespace drupe
