#include "image/archive.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/tar_encode.h"

namespace drupe {
namespace {

std::string file(const std::string& name, const std::string& data) {
  TarEntry entry;
  entry.name = name;
  entry.mode = 0600;
  entry.size = data.size();
  return encode_tar_entry(entry) + data + std::string(tar_padding(data.size()), '\0');
}

std::string link(const std::string& name, char type, const std::string& target) {
  TarEntry entry;
  entry.name = name;
  entry.type = type;
  entry.link = target;
  return encode_tar_entry(entry);
}

UniqueFd memory(const std::string& bytes) {
  UniqueFd fd(::memfd_create("archive", MFD_CLOEXEC));
  EXPECT_TRUE(write_all(fd.get(), bytes));
  return fd;
}

TEST(TarArchive, FindsMembersInPlace) {
  const UniqueFd fd = memory("front" + file("./a", "one") + file("blobs/sha256/x", std::string(5000, 'x')) +
                             file("b/c", "") + tar_end());
  const auto archive = open_tar_archive(fd.get(), 5);
  ASSERT_TRUE(archive) << archive.error().message;
  EXPECT_EQ((*archive)->read("a", 10).value(), "one");
  EXPECT_EQ((*archive)->read("blobs/sha256/x", 5000).value(), std::string(5000, 'x'));
  EXPECT_EQ((*archive)->read("b/c", 0).value(), "");
  EXPECT_EQ((*archive)->read("blobs/sha256/x", 4999).error().code, ErrorCode::kLimit);
  EXPECT_EQ((*archive)->read("none", 1).error().code, ErrorCode::kNotFound);
}

TEST(TarArchive, FollowsLinksInsideItselfOnly) {
  const UniqueFd fd = memory(file("one/layer.tar", "data") + link("two/layer.tar", 'l', "../one/layer.tar") +
                             link("three", 'h', "one/layer.tar") + link("loop", 'l', "loop") +
                             link("out", 'l', "/etc/passwd") + tar_end());
  const auto archive = open_tar_archive(fd.get(), 0);
  ASSERT_TRUE(archive);
  EXPECT_EQ((*archive)->read("two/layer.tar", 10).value(), "data");
  EXPECT_EQ((*archive)->read("three", 10).value(), "data");
  EXPECT_FALSE((*archive)->read("loop", 10));
  EXPECT_FALSE((*archive)->read("out", 10));
  EXPECT_FALSE((*archive)->read("/etc/passwd", 100000));
}

TEST(TarArchive, NoticesWhatIsCut) {
  const std::string whole = file("a", std::string(2000, 'a'));
  for (const std::size_t size : {600U, 1000U, 1024U, 2000U}) {
    const UniqueFd fd = memory(whole.substr(0, size));
    EXPECT_EQ(open_tar_archive(fd.get(), 0).error().code, ErrorCode::kIntegrity) << size;
  }
  for (const std::string& bytes :
       {std::string(), std::string("not a tar"), std::string(1024, '\0'), std::string(1024, 'x')})
    EXPECT_FALSE(open_tar_archive(memory(bytes).get(), 0));
}

TEST(FolderArchive, StaysInItsFolder) {
  std::string path = "/tmp/archive_test.XXXXXX";
  ASSERT_NE(::mkdtemp(path.data()), nullptr);
  ASSERT_TRUE(make_dirs(path + "/blobs"));
  ASSERT_TRUE(replace_file(AT_FDCWD, path + "/blobs/x", "data", Sync::kNo));
  ASSERT_EQ(::symlink("blobs/x", (path + "/link").c_str()), 0);
  ASSERT_EQ(::mkfifo((path + "/pipe").c_str(), 0600), 0);
  const auto archive =
      open_folder_archive(UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  EXPECT_EQ(archive->read("blobs/x", 10).value(), "data");
  EXPECT_EQ(archive->read("none", 10).error().code, ErrorCode::kNotFound);
  for (const char* name : {"link", "pipe", "blobs", "../archive_test", "/etc/passwd", ""})
    EXPECT_FALSE(archive->read(name, 100000)) << name;
  EXPECT_TRUE(remove_tree(AT_FDCWD, path));
}

}  // namespace
}  // namespace drupe
