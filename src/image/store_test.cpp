#include "image/store.h"

#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/tar_encode.h"
#include "image/store_files.h"

namespace drupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(path_.data()), nullptr);
    auto store = ImageStore::open(path_ + "/images");
    ASSERT_TRUE(store);
    store_ = *std::move(store);
  }
  void TearDown() override { EXPECT_TRUE(remove_tree(AT_FDCWD, path_)); }

  /// An image whose only file has `content`.
  Result<Image> import(const std::string& content, const std::vector<std::string>& names) {
    TarEntry entry;
    entry.name = "file";
    entry.mode = 0644;
    entry.size = content.size();
    const std::string tar =
        encode_tar_entry(entry) + content + std::string(tar_padding(content.size()), '\0') + tar_end();
    const UniqueFd fd(::memfd_create("tar", MFD_CLOEXEC));
    EXPECT_TRUE(pwrite_all(fd.get(), tar, 0));
    ImageConfig config;
    config.env = {"A=1"};
    config.os = "linux";
    config.architecture = "amd64";
    return store_->import_rootfs_tar(fd.get(), config, names, {});
  }
  std::vector<std::string> entries(const std::string& folder) const {
    return *list_folder(AT_FDCWD, path_ + "/images/" + folder);
  }

  std::string path_ = "/tmp/store_test.XXXXXX";
  std::unique_ptr<ImageStore> store_;
};

TEST_F(StoreTest, AnEmptyStoreHasNothing) {
  EXPECT_EQ(store_->find("python:3").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store_->find("abcd").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store_->find("Not A Name").error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(store_->list()->empty());
  EXPECT_FALSE(store_->tag("a", "b"));
  EXPECT_FALSE(store_->remove("a"));
}

TEST_F(StoreTest, ImagesAreFoundByNameAndId) {
  const auto made = import("one", {"team/app:1"});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(made->names, ElementsAre("team/app:1"));
  EXPECT_GT(made->disk_bytes, 0U);
  EXPECT_EQ(made->virtual_bytes, std::uint64_t{8} << 30);
  for (const std::string& name :
       {std::string("team/app:1"), std::string("docker.io/team/app:1"), made->id, made->id.substr(0, 4),
        "sha256:" + made->id, "sha256:" + made->id.substr(0, 12)}) {
    const auto found = store_->find(name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->id, made->id);
    EXPECT_EQ(found->config, made->config);
    EXPECT_EQ(found->disk_path, path_ + "/images/disks/" + made->id + "/disk.ext4");
  }
  EXPECT_FALSE(store_->find("team/app"));
  EXPECT_FALSE(store_->find(made->id.substr(0, 3)));
  EXPECT_THAT(entries("tmp"), ElementsAre());
  struct stat info{};
  ASSERT_EQ(::stat(made->disk_path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0400U);
}

TEST_F(StoreTest, TheSameContentIsOneImage) {
  const auto one = import("same", {"one:1"});
  const auto two = import("same", {"two:1"});
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->id, two->id);
  const auto list = store_->list();
  ASSERT_EQ(list->size(), 1U);
  EXPECT_THAT(list->front().names, ElementsAre("one:1", "two:1"));
}

TEST_F(StoreTest, TheImageGoesWithItsLastName) {
  const auto made = import("x", {"one:1"});
  ASSERT_TRUE(made);
  ASSERT_TRUE(store_->tag("one:1", "two"));
  // A sandbox holds a link of its own.
  ASSERT_EQ(::link(made->disk_path.c_str(), (path_ + "/held").c_str()), 0);
  EXPECT_EQ(store_->remove(made->id).error().code, ErrorCode::kInvalidState);
  const auto first = store_->remove("one:1");
  ASSERT_TRUE(first);
  EXPECT_THAT(first->names, ElementsAre("one:1"));
  EXPECT_EQ(first->deleted_id, "");
  const auto last = store_->remove(made->id.substr(0, 8));
  ASSERT_TRUE(last) << last.error().message;
  EXPECT_THAT(last->names, ElementsAre("two:latest"));
  EXPECT_EQ(last->deleted_id, made->id);
  EXPECT_FALSE(store_->find("two"));
  EXPECT_THAT(entries("disks"), ElementsAre());
  EXPECT_THAT(entries("tmp"), ElementsAre());
  EXPECT_EQ(::access((path_ + "/held").c_str(), R_OK), 0);
}

TEST_F(StoreTest, ForceRemovesAllNames) {
  const auto made = import("x", {"one:1", "two:1"});
  ASSERT_TRUE(made);
  EXPECT_THAT(store_->remove(made->id, true)->names, ElementsAre("one:1", "two:1"));
  EXPECT_TRUE(store_->list()->empty());
}

TEST_F(StoreTest, NamesMove) {
  const auto one = import("1", {"name"});
  const auto two = import("2", {"name"});
  ASSERT_TRUE(one && two);
  EXPECT_EQ(store_->find("name")->id, two->id);
  EXPECT_TRUE(store_->find(one->id)->names.empty());
  EXPECT_FALSE(store_->tag("name", "x@sha256:" + std::string(64, 'a')));
  EXPECT_FALSE(store_->tag("name", "../x"));
}

TEST_F(StoreTest, AFailedImportLeavesNothing) {
  const UniqueFd fd(::memfd_create("tar", MFD_CLOEXEC));
  ASSERT_TRUE(pwrite_all(fd.get(), std::string(5000, 'x'), 0));
  EXPECT_FALSE(store_->import_rootfs_tar(fd.get(), {}, {"x"}, {}));
  for (const char* folder : {"names", "disks", "tmp", "blobs"}) EXPECT_THAT(entries(folder), ElementsAre());
}

TEST_F(StoreTest, LeftoversOfTheDeadAreSweptThoseOfTheLivingAreNot) {
  ASSERT_TRUE(import("x", {"x"}));
  ASSERT_TRUE(make_dirs(path_ + "/images/tmp/dead"));
  ASSERT_TRUE(make_dirs(path_ + "/images/tmp/alive"));
  const UniqueFd alive(::open((path_ + "/images/tmp/alive").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(alive.get(), LOCK_EX), 0);
  ASSERT_TRUE(replace_file(AT_FDCWD, path_ + "/images/blobs/recent", "x", Sync::kNo));
  ASSERT_TRUE(replace_file(AT_FDCWD, path_ + "/images/blobs/old", "x", Sync::kNo));
  const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (path_ + "/images/blobs/old").c_str(), long_ago, 0), 0);
  ASSERT_TRUE(import("y", {"y"}));
  EXPECT_THAT(entries("tmp"), ElementsAre("alive"));
  EXPECT_THAT(entries("blobs"), ElementsAre("recent"));
}

TEST_F(StoreTest, DamagedRecordsAreSaid) {
  const auto made = import("x", {"x"});
  ASSERT_TRUE(made);
  const std::string record = path_ + "/images/disks/" + made->id + "/image.json";
  for (const std::string text : {"", "{}", "[", "null", R"({"version":1,"id":7})"}) {
    ASSERT_TRUE(replace_file(AT_FDCWD, record, text, Sync::kNo));
    EXPECT_EQ(store_->find("x").error().code, ErrorCode::kIntegrity) << text;
  }
  EXPECT_TRUE(store_->remove("x"));
}

TEST_F(StoreTest, RecordsRoundTrip) {
  Image image;
  image.id = std::string(64, 'a');
  image.config.env = {"A=\xff"};
  image.created = -5;
  image.disk_bytes = ~std::uint64_t{0};
  image.virtual_bytes = 1;
  const auto again = decode_image_record(encode_image_record(image));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->created, image.created);
  EXPECT_EQ(again->disk_bytes, image.disk_bytes);
}

}  // namespace
}  // namespace drupe
