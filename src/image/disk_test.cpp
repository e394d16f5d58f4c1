#include "image/disk.h"

#include <atomic>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "image/disk_testing.h"

namespace drupe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint32_t kIndexFlag = 0x1000;  // EXT2_INDEX_FL

/// Writes the layers and checks the file system.
Disk written(const std::vector<std::string>& layers) {
  Disk disk;
  const auto done = disk.write(layers);
  EXPECT_TRUE(done) << to_string(done.error());
  EXPECT_EQ(disk.check(), "");
  return disk;
}

Error refused(const std::vector<std::string>& layers, DiskOptions options = Disk::small()) {
  Disk disk;
  const auto done = disk.write(layers, std::move(options));
  EXPECT_FALSE(done);
  return done ? Error() : done.error();
}

TEST(Disk, KeepsEveryKindOfEntryAsItWas) {
  const std::string long_target(200, 't');
  const std::string capability("\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
  const Disk disk =
      written({Tar()
                   .add({.name = "./", .type = 'd', .mode = 0711, .uid = 7})
                   .dir("bin")
                   .add({.name = "bin/su",
                         .mode = 04755,
                         .uid = 100'000,
                         .gid = 70'000,
                         .mtime_ns = 1'700'000'000'123'456'789,
                         .xattrs = {{"security.capability", capability}, {"user.note", "hi"}}},
                        "program")
                   .hard_link("bin/su2", "bin/su")
                   .symlink("short", "bin/su")
                   .symlink("long", long_target)
                   .file("empty")
                   .add({.name = "pipe", .type = 'p', .mode = 0600})
                   .add({.name = "null", .type = 'c', .mode = 0666, .device_major = 1, .device_minor = 3})
                   .add({.name = "big", .type = 'b', .device_major = 259, .device_minor = 70'000})
                   .add({.name = "old", .mtime_ns = -1'500'000'000})
                   .add({.name = "far", .mtime_ns = 5'000'000'000'000'000'000})
                   .bytes()});
  EXPECT_EQ(disk.stat("/").mode, 040711U);
  EXPECT_EQ(disk.stat("/").uid, 7U);
  const Stat su = disk.stat("/bin/su");
  EXPECT_EQ(su.mode, 0104755U);
  EXPECT_EQ(su.uid, 100'000U);
  EXPECT_EQ(su.gid, 70'000U);
  EXPECT_EQ(su.links, 2U);
  EXPECT_EQ(su.mtime_ns, 1'700'000'000'123'456'789);
  EXPECT_EQ(disk.read("/bin/su2"), "program");
  EXPECT_EQ(disk.xattr("/bin/su", "security.capability"), capability);
  EXPECT_EQ(disk.xattr("/bin/su", "user.note"), "hi");
  EXPECT_EQ(disk.read("/short"), "bin/su");
  EXPECT_EQ(disk.read("/long"), long_target);
  EXPECT_EQ(disk.stat("/empty").size, 0U);
  EXPECT_EQ(disk.stat("/pipe").mode, 010600U);
  EXPECT_EQ(disk.stat("/null").device, 0x103U);
  EXPECT_EQ(disk.stat("/big").device, (70'000U & 0xFFU) | 259U << 8U | (70'000U & ~0xFFU) << 12U);
  EXPECT_EQ(disk.stat("/old").mtime_ns, -1'500'000'000);
  EXPECT_EQ(disk.stat("/far").mtime_ns, 5'000'000'000'000'000'000);
}

TEST(Disk, MountPointsAreMadeAndNeverFollowed) {
  const Disk empty = written({});
  EXPECT_THAT(empty.list("/"), ElementsAre("dev", "etc", "lost+found", "proc", "run", "sys", "tmp"));
  EXPECT_EQ(empty.stat("/tmp").mode, 041777U);

  // crun and runc CVEs: an image whose /dev leads elsewhere.
  const Disk odd = written({Tar()
                                .dir("bin")
                                .symlink("dev", "bin")
                                .symlink("proc", "/etc")
                                .file("sys", "x")
                                .symlink("etc", "bin")
                                .file("tmp", "mine")
                                .bytes()});
  EXPECT_EQ(odd.stat("/dev").mode, 040755U);
  EXPECT_EQ(odd.stat("/proc").mode, 040555U);
  EXPECT_EQ(odd.stat("/sys").mode, 040555U);
  EXPECT_EQ(odd.read("/etc"), "bin");
  EXPECT_EQ(odd.read("/tmp"), "mine");
  EXPECT_THAT(odd.list("/bin"), ElementsAre());
}

TEST(Disk, SparseFilesStaySparse) {
  const std::string data(4096, 'd');
  TarEntry sparse{.name = "s", .size = std::uint64_t{1} << 33U, .sparse = true};
  // The first two share a block; the last one ends the file.
  sparse.extents = {{100, 3}, {3000, 2}, {std::uint64_t{1} << 32U, 4096}, {sparse.size, 0}};
  const Disk disk = written({Tar().add(sparse, "abcde" + data).bytes()});
  const Stat stat = disk.stat("/s");
  EXPECT_EQ(stat.size, std::uint64_t{1} << 33U);
  EXPECT_EQ(stat.blocks, 16U);

  TarEntry holes{.name = "h", .size = 5000 * 8192, .sparse = true};
  std::string bytes;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    holes.extents.push_back({i * 8192 + 10, 1});
    bytes += static_cast<char>('a' + i % 26);
  }
  const Disk many = written({Tar().add(holes, bytes).bytes()});
  const std::string content = many.read("/h");
  ASSERT_EQ(content.size(), holes.size);
  for (std::uint64_t i = 0; i < 5000; ++i) ASSERT_EQ(content[i * 8192 + 10], bytes[i]) << i;
  EXPECT_EQ(content.find_first_not_of('\0'), 10U);
}

TEST(Disk, FilesLargerThanOneExtent) {
  std::string data(std::size_t{140} << 20U, 'x');
  data[0] = 'a';
  data.back() = 'z';
  DiskOptions options = Disk::small();
  options.virtual_bytes = std::uint64_t{512} << 20U;
  Disk disk;
  ASSERT_TRUE(disk.write({Tar().file("f", data).bytes()}, options));
  EXPECT_EQ(disk.check(), "");
  EXPECT_EQ(disk.read("/f"), data);
}

TEST(Disk, LargeDirectoriesHaveAnIndexThatIsRight) {
  Tar tar;
  tar.dir("many");
  for (int i = 0; i < 20'000; ++i) tar.file("many/file-" + std::to_string(i));
  // Too many for one level of index: stays without.
  for (int i = 0; i < 12'000; ++i) tar.file("long/" + std::string(240, 'n') + std::to_string(i));
  DiskOptions options = Disk::small();
  EXPECT_EQ(refused({tar.bytes()}, options).code, ErrorCode::kLimit);  // One file for every 16 KiB of disk.
  options.virtual_bytes = std::uint64_t{1} << 30U;
  Disk disk;
  ASSERT_TRUE(disk.write({tar.bytes()}, options));
  EXPECT_EQ(disk.check(), "");
  EXPECT_NE(disk.stat("/many").flags & kIndexFlag, 0U);
  EXPECT_EQ(disk.list("/many").size(), 20'000U);
  EXPECT_EQ(disk.list("/long").size(), 12'000U);
  EXPECT_TRUE(disk.exists("/many/file-19999"));
}

TEST(Disk, TheSameLayersGiveTheSameBytes) {
  const std::vector<std::string> layers{
      Tar().file("a", "1").dir("d").file("d/b", std::string(9000, 'b')).bytes(),
      Tar().file("d/.wh.b").file("c", "3").bytes()};
  EXPECT_EQ(written(layers).digest(), written(layers).digest());
}

TEST(Disk, BlocksOfRemovedFilesAreZeroWhenTheyAreUsedAgain) {
  DiskOptions options = Disk::small();
  const std::string full(std::size_t{60} << 20U, '\xff');
  Disk disk;
  const auto done = disk.write({Tar().file("a", full).bytes(), Tar().file(".wh.a").file("b", full).bytes(),
                                Tar().file(".wh.b").file("c", full).file("small", "s").bytes()},
                               options);
  ASSERT_TRUE(done) << to_string(done.error());
  EXPECT_EQ(disk.check(), "");
  EXPECT_EQ(disk.read("/c"), full);
  EXPECT_EQ(disk.read("/small"), "s");
  EXPECT_LT(done->allocated_bytes, std::uint64_t{70} << 20U);
  // Nothing of what was removed is left where a guest could read it.
  TarEntry hole{.name = "h", .size = 4096, .sparse = true, .extents = {{0, 1}}};
  Disk reused;
  ASSERT_TRUE(reused.write(
      {Tar().file("a", full).bytes(),
       Tar().file(".wh.a").file("x", std::string(std::size_t{40} << 20U, 'x')).add(hole, "h").bytes()},
      options));
  EXPECT_EQ(reused.read("/h"), "h" + std::string(4095, '\0'));
}

TEST(Disk, FullDisksAndBrokenSourcesAreSaid) {
  EXPECT_EQ(refused({Tar().file("a", std::string(std::size_t{120} << 20U, 'a')).bytes()}).code,
            ErrorCode::kLimit);
  const std::string tar = Tar().file("a", std::string(5000, 'a')).bytes();
  const Error cut = refused({tar.substr(0, 3000)});
  EXPECT_EQ(cut.code, ErrorCode::kIntegrity);
  EXPECT_THAT(cut.message, HasSubstr("layer 1"));
  DiskOptions odd = Disk::small();
  odd.virtual_bytes = 4096;
  EXPECT_EQ(refused({}, odd).code, ErrorCode::kInvalidArgument);
}

class FailingSource : public ByteSource {
 public:
  Result<std::size_t> read(std::span<std::uint8_t> into) override {
    if (given_) return fail(ErrorCode::kIntegrity, "The digest is wrong");
    given_ = true;
    const std::string bytes = Tar().file("a").bytes();
    std::ranges::copy(bytes, into.begin());
    return bytes.size();
  }

 private:
  bool given_ = false;
};

TEST(Disk, AnErrorAfterTheEndOfTheArchiveCounts) {
  const Disk disk;
  const auto done = write_disk(
      disk.fd(),
      {{.label = "it",
        .open = []() -> Result<std::unique_ptr<ByteSource>> { return std::make_unique<FailingSource>(); }}},
      Disk::small());
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("The digest is wrong"));
}

TEST(Disk, ReportsProgressAndStops) {
  const std::string tar = Tar().file("a", std::string(3 << 20U, 'a')).bytes();
  DiskOptions options = Disk::small();
  std::uint64_t last = 0;
  options.progress = [&](const Progress& progress) {
    EXPECT_EQ(progress.what, "Writing layer 1");
    EXPECT_GE(progress.done, last);
    last = progress.done;
    EXPECT_EQ(progress.total, tar.size());
  };
  Disk disk;
  ASSERT_TRUE(disk.write({tar}, options));
  EXPECT_EQ(last, tar.size());
  const std::atomic<bool> stop = true;
  options.cancel = &stop;
  EXPECT_EQ(refused({tar}, options).code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace drupe::testing
