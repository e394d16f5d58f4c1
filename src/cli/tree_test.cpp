// Trees to tar streams and back, and what a hostile stream cannot do.
#include <cstdlib>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/tar_encode.h"
#include "cli/tree_extract.h"
#include "cli/tree_writer.h"

namespace drupe::cli {
namespace {

using testing::HasSubstr;

struct Tree : testing::Test {
  std::string root;
  UniqueFd target;
  std::vector<std::string> skipped;

  Tree() {
    std::string pattern = testing::TempDir() + "/drupe-tree-XXXXXX";
    root = ::mkdtemp(pattern.data());
    EXPECT_EQ(::mkdir(path("to").c_str(), 0755), 0);
    target = *open_at(AT_FDCWD, path("to"), O_RDONLY | O_DIRECTORY);
  }
  ~Tree() override { EXPECT_TRUE(remove_tree(AT_FDCWD, root)); }

  [[nodiscard]] std::string path(const std::string& name) const { return root + "/" + name; }
  void put(const std::string& name, const std::string& content, mode_t mode = 0644) const {
    const UniqueFd fd(::open(path(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    ASSERT_TRUE(fd.valid());
    ASSERT_TRUE(write_all(fd.get(), content));
    ASSERT_EQ(::fchmod(fd.get(), mode), 0);
  }
  [[nodiscard]] std::string get(const std::string& name) const {
    return read_file(AT_FDCWD, path(name), 1 << 20).value_or("(missing)");
  }
  [[nodiscard]] struct stat look(const std::string& name) const {
    struct stat status{};
    EXPECT_EQ(::lstat(path(name).c_str(), &status), 0) << name;
    return status;
  }
  Status extract(const std::string& tar, ExtractOptions options = {}) {
    MemorySource source(tar);
    return extract_tree(source, target, options,
                        [this](std::string_view text) { skipped.emplace_back(text); });
  }
  static std::string file(const std::string& name, const std::string& data, std::uint32_t mode = 0644) {
    return encode_tar_entry({.name = name, .mode = mode, .size = data.size()}) + data +
           std::string(tar_padding(data.size()), '\0');
  }
  static std::string link(const std::string& name, const std::string& target_text) {
    return encode_tar_entry({.name = name, .type = 'l', .link = target_text});
  }
  static std::string folder(const std::string& name, std::uint32_t mode = 0755) {
    return encode_tar_entry({.name = name, .type = 'd', .mode = mode});
  }
};

TEST_F(Tree, ARoundTripKeepsModesTimesLinksAndHoles) {
  ASSERT_EQ(::mkdir(path("from").c_str(), 0750), 0);
  put("from/run", "#!/bin/sh\n", 0755);
  put("from/name with space", std::string("a\0b", 3));
  ASSERT_EQ(::link(path("from/run").c_str(), path("from/z-same").c_str()), 0);
  ASSERT_EQ(::symlink("../outside", path("from/link").c_str()), 0);
  {
    const UniqueFd sparse(::open(path("from/sparse").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::ftruncate(sparse.get(), 1 << 30), 0);
    ASSERT_TRUE(pwrite_all(sparse.get(), "data", 1 << 29));
  }
  const std::array times{timespec{1, 0}, timespec{1'600'000'000, 123'456'789}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path("from/run").c_str(), times.data(), 0), 0);
  ASSERT_EQ(::utimensat(AT_FDCWD, path("from").c_str(), times.data(), 0), 0);

  std::string tar;
  ASSERT_TRUE(write_tree(path("from"), "any", {}, [&](std::string_view bytes) -> Status {
    tar += bytes;
    return {};
  }));
  EXPECT_LT(tar.size(), 100'000U);
  ExtractOptions options;
  options.prefix = "copy";
  const auto done = extract(tar, options);
  ASSERT_TRUE(done) << to_string(done.error());
  EXPECT_EQ(look("to/copy").st_mode & 07777U, 0750U);
  EXPECT_EQ(look("to/copy").st_mtim.tv_sec, 1'600'000'000);
  EXPECT_EQ(get("to/copy/run"), "#!/bin/sh\n");
  EXPECT_EQ(look("to/copy/run").st_mode & 07777U, 0755U);
  EXPECT_EQ(look("to/copy/run").st_mtim.tv_nsec, 123'456'789);
  EXPECT_EQ(look("to/copy/run").st_ino, look("to/copy/z-same").st_ino);
  EXPECT_EQ(get("to/copy/name with space"), std::string("a\0b", 3));
  EXPECT_TRUE(S_ISLNK(look("to/copy/link").st_mode));
  EXPECT_EQ(look("to/copy/sparse").st_size, 1 << 30);
  EXPECT_LT(look("to/copy/sparse").st_blocks * 512, 1 << 20);
}

// docker cp CVE-2018-15664, microsandbox GHSA-4vq3: a link in the stream must not lead a later file out.
TEST_F(Tree, AFileUnderALinkOfTheStreamIsRefused) {
  put("secret", "host");
  const auto done = extract(folder("t") + link("t/dir", "../..") + file("t/dir/secret", "guest"));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kGuest);
  EXPECT_EQ(get("secret"), "host");
}

TEST_F(Tree, AFileOverALinkReplacesTheLink) {
  put("secret", "host");
  ASSERT_TRUE(extract(folder("t") + link("t/a", "../secret") + file("t/a", "guest")));
  EXPECT_EQ(get("secret"), "host");
  EXPECT_EQ(get("to/a"), "guest");
  EXPECT_TRUE(S_ISREG(look("to/a").st_mode));
}

TEST_F(Tree, ALinkThatWasThereBeforeIsNotFollowed) {
  ASSERT_EQ(::mkdir(path("elsewhere").c_str(), 0755), 0);
  ASSERT_EQ(::symlink("../elsewhere", path("to/dir").c_str()), 0);
  EXPECT_FALSE(extract(folder("t") + file("t/dir/x", "guest")));
  EXPECT_FALSE(extract(folder("t") + folder("t/dir")));
  EXPECT_NE(::access(path("elsewhere/x").c_str(), F_OK), 0);
}

TEST_F(Tree, NamesThatLeaveTheTargetAreRefused) {
  ExtractOptions keep;
  keep.drop_first = false;
  for (const char* name : {"../x", "a/../../x", "/x", "..", "a/.."}) {
    const auto done = extract(file(name, "guest"), keep);
    ASSERT_FALSE(done) << name;
    EXPECT_EQ(done.error().code, ErrorCode::kGuest) << name;
  }
  EXPECT_NE(::access(path("x").c_str(), F_OK), 0);
}

TEST_F(Tree, HardLinksOnlyToFilesOfTheStream) {
  put("to/mine", "host");
  EXPECT_FALSE(extract(folder("t") + encode_tar_entry({.name = "t/h", .type = 'h', .link = "t/mine"})));
  EXPECT_FALSE(extract(folder("t") + encode_tar_entry({.name = "t/h", .type = 'h', .link = "/etc/passwd"})));
  EXPECT_FALSE(
      extract(folder("t") + encode_tar_entry({.name = "t/h", .type = 'h', .link = "t/../../secret"})));
  EXPECT_TRUE(extract(folder("t") + file("t/f", "x") +
                      encode_tar_entry({.name = "t/h", .type = 'h', .link = "t/f"})));
}

TEST_F(Tree, DevicesAreLeftOutAndSetIdBitsDropped) {
  ASSERT_TRUE(extract(
      folder("t") +
      encode_tar_entry({.name = "t/null", .type = 'c', .mode = 0666, .device_major = 1, .device_minor = 3}) +
      file("t/su", "x", 06755)));
  EXPECT_THAT(skipped, testing::ElementsAre(HasSubstr("device")));
  EXPECT_EQ(look("to/su").st_mode & 07777U, 0755U);
}

TEST_F(Tree, AFolderDoesNotReplaceAFileNorAFileAFolder) {
  put("to/f", "host");
  EXPECT_FALSE(extract(folder("t") + folder("t/f")));
  ASSERT_EQ(::mkdir(path("to/d").c_str(), 0755), 0);
  EXPECT_FALSE(extract(folder("t") + file("t/d", "x")));
}

TEST_F(Tree, AReadOnlyFolderCanBeFilled) {
  ASSERT_TRUE(extract(folder("t") + folder("t/ro", 0555) + file("t/ro/x", "in")));
  EXPECT_EQ(get("to/ro/x"), "in");
  EXPECT_EQ(look("to/ro").st_mode & 07777U, 0555U);
}

TEST_F(Tree, ACutStreamIsSaid) {
  const std::string whole = folder("t") + file("t/x", std::string(5000, 'x'));
  EXPECT_EQ(extract(whole.substr(0, 3000)).error().code, ErrorCode::kIntegrity);
}

}  // namespace
}  // namespace drupe::cli
