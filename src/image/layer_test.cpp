// What layers mean, and what is refused in them. Sources of cases: image-spec/layer.md; advisories on
// extraction named at the tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "image/disk_testing.h"

namespace drupe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

std::string base() {
  return Tar()
      .dir("d")
      .file("d/a", "a")
      .file("d/b", "b")
      .dir("d/e")
      .file("d/e/f", "f")
      .file("x", "x")
      .bytes();
}

TEST(Layer, WhiteoutsHideWhatLowerLayersPut) {
  const Disk disk = written({base(), Tar().file("d/.wh.a").file(".wh.x").file("d/e/.wh.missing").bytes()});
  EXPECT_THAT(disk.list("/d"), ElementsAre("b", "e"));
  EXPECT_FALSE(disk.exists("/x"));
}

// hypeman#94: what a later layer adds again is there.
TEST(Layer, ALaterLayerMayAddAgain) {
  const Disk disk = written({base(), Tar().file(".wh.x").bytes(), Tar().file("x", "new").bytes()});
  EXPECT_EQ(disk.read("/x"), "new");
}

TEST(Layer, AWhiteoutLeavesItsOwnLayerAlone) {
  // Before and after, for a file and for a folder that is replaced as a whole.
  const Disk before =
      written({base(), Tar().file(".wh.x").file("x", "2").file(".wh.d").dir("d").file("d/n").bytes()});
  const Disk after =
      written({base(), Tar().file("x", "2").file(".wh.x").dir("d").file("d/n").file(".wh.d").bytes()});
  for (const Disk* disk : {&before, &after}) {
    EXPECT_EQ(disk->read("/x"), "2");
    EXPECT_THAT(disk->list("/d"), ElementsAre("n"));
  }
}

TEST(Layer, OpaqueMarksEmptyAFolderOfLowerEntriesOnly) {
  const Disk first = written({base(), Tar().dir("d").file("d/.wh..wh..opq").file("d/n").bytes()});
  const Disk last = written({base(), Tar().dir("d").file("d/n").file("d/.wh..wh..opq").bytes()});
  EXPECT_THAT(first.list("/d"), ElementsAre("n"));
  EXPECT_THAT(last.list("/d"), ElementsAre("n"));
  // Only the exact name is the mark; other names of that family are nobody's content.
  const Disk other = written({base(), Tar().file("d/.wh..wh..opqx").file(".wh..wh.plnk/1.2").bytes()});
  EXPECT_THAT(other.list("/d"), ElementsAre("a", "b", "e"));
  EXPECT_FALSE(other.exists("/.wh..wh.plnk"));
}

// smolvm#397, #401
TEST(Layer, AWhiteoutMayBeStoredAsAHardLink) {
  const Disk disk = written({base(), Tar().file("d/.wh.a").hard_link("d/.wh.b", "d/.wh.a").bytes()});
  EXPECT_THAT(disk.list("/d"), ElementsAre("e"));
}

TEST(Layer, WhiteoutsThatNameNothingAreRefused) {
  for (const char* name : {".wh.", "d/.wh..", "d/.wh..."})
    EXPECT_EQ(refused({base(), Tar().file(name).bytes()}).code, ErrorCode::kIntegrity) << name;
}

// go-microvm#38
TEST(Layer, AFileReplacesALinkAndNeverWritesThroughIt) {
  const Disk disk = written(
      {Tar().file("target", "safe").symlink("usr/bin/env", "/target").symlink("l", "d").dir("d").bytes(),
       Tar().file("usr/bin/env", "new").dir("l").file("l/in").bytes()});
  EXPECT_EQ(disk.read("/usr/bin/env"), "new");
  EXPECT_EQ(disk.read("/target"), "safe");
  EXPECT_THAT(disk.list("/l"), ElementsAre("in"));
  EXPECT_THAT(disk.list("/d"), ElementsAre());
}

TEST(Layer, AFileReplacesAFolderAndAFolderAFile) {
  const Disk disk = written({base(), Tar().file("d", "file").dir("x").file("x/y").bytes()});
  EXPECT_EQ(disk.read("/d"), "file");
  EXPECT_THAT(disk.list("/x"), ElementsAre("y"));
}

TEST(Layer, AFolderNamedAgainKeepsWhatIsInIt) {
  const Disk disk = written({base(), Tar().add({.name = "d", .type = 'd', .mode = 0700, .uid = 5}).bytes()});
  EXPECT_EQ(disk.stat("/d").mode, 040700U);
  EXPECT_EQ(disk.stat("/d").uid, 5U);
  EXPECT_THAT(disk.list("/d"), ElementsAre("a", "b", "e"));
}

// microsandbox#356: links, absolute and relative, stay; parents that are links are followed in the image.
TEST(Layer, ParentsThatAreLinksAreFollowedInsideTheImage) {
  const Disk disk = written({Tar()
                                 .dir("usr")
                                 .dir("usr/lib")
                                 .symlink("lib", "usr/lib")
                                 .symlink("abs", "/usr/lib")
                                 .symlink("up", "../../../usr/./lib/")
                                 .symlink("dangling", "usr/new/folder")
                                 .bytes(),
                             Tar().file("lib/1").file("abs/2").file("up/3").file("dangling/4").bytes()});
  EXPECT_THAT(disk.list("/usr/lib"), ElementsAre("1", "2", "3"));
  EXPECT_THAT(disk.list("/usr/new/folder"), ElementsAre("4"));
  EXPECT_EQ(disk.read("/lib"), "usr/lib");
  EXPECT_EQ(disk.read("/up"), "../../../usr/./lib/");
  // Whiteouts go the same way.
  const Disk hidden = written({Tar().dir("usr").file("usr/a").file("usr/b").symlink("u", "usr").bytes(),
                               Tar().file("u/.wh.a").bytes()});
  EXPECT_THAT(hidden.list("/usr"), ElementsAre("b"));
}

TEST(Layer, LinksInACircleAndFilesAsFoldersAreRefused) {
  EXPECT_EQ(refused({Tar().symlink("a", "b").symlink("b", "a").file("a/x").bytes()}).code,
            ErrorCode::kIntegrity);
  EXPECT_EQ(refused({Tar().file("a").file("a/x").bytes()}).code, ErrorCode::kIntegrity);
}

// containerd CVE-2021-32760, banger, oras-go: names that lead out.
TEST(Layer, NamesThatLeadOutAreRefusedAndAbsoluteOnesBeginAtTheRoot) {
  for (const char* name : {"../x", "a/../../x", "a/..", "/..", "a/../.wh.x"}) {
    const Error error = refused({Tar().file(name).bytes()});
    EXPECT_EQ(error.code, ErrorCode::kIntegrity) << name;
    EXPECT_THAT(error.message, HasSubstr(".."));
  }
  const Disk disk = written({Tar().file("/etc/passwd", "p").file("//a//./b", "b").bytes()});
  EXPECT_EQ(disk.read("/etc/passwd"), "p");
  EXPECT_EQ(disk.read("/a/b"), "b");
}

TEST(Layer, HardLinksFindOnlyWhatIsInTheImage) {
  const Disk disk = written(
      {base(),
       Tar().hard_link("h", "/d/a").hard_link("h2", "h").symlink("l", "no").hard_link("l2", "l").bytes()});
  EXPECT_EQ(disk.read("/h2"), "a");
  EXPECT_EQ(disk.stat("/d/a").links, 3U);
  EXPECT_EQ(disk.read("/l2"), "no");
  for (const char* target : {"../../etc/passwd", "/etc/passwd", "no/where", "d", ""})
    EXPECT_EQ(refused({base(), Tar().hard_link("h", target).bytes()}).code, ErrorCode::kIntegrity) << target;
}

TEST(Layer, AHardLinkMaySurviveTheFolderItReplaces) {
  const Disk disk = written({base(), Tar().hard_link("d", "d/a").bytes(), Tar().hard_link("d", "d").bytes()});
  EXPECT_EQ(disk.read("/d"), "a");
  EXPECT_EQ(disk.stat("/d").links, 1U);
}

TEST(Layer, ReplacingOneNameLeavesTheOthers) {
  const Disk disk =
      written({Tar().file("a", "old").hard_link("b", "a").bytes(), Tar().file("a", "new").bytes()});
  EXPECT_EQ(disk.read("/a"), "new");
  EXPECT_EQ(disk.read("/b"), "old");
  EXPECT_EQ(disk.stat("/b").links, 1U);
}

TEST(Layer, BoundsHold) {
  const auto code = [](const Tar& tar, DiskLimits limits = {}) {
    DiskOptions options = Disk::small();
    options.limits = limits;
    return refused({tar.bytes()}, options).code;
  };
  EXPECT_EQ(code(Tar().file(std::string(64 * 1024, 'n'))), ErrorCode::kLimit);
  EXPECT_EQ(code(Tar().file(std::string(256, 'n'))), ErrorCode::kLimit);
  EXPECT_EQ(code(Tar().symlink("l", std::string(4096, 't'))), ErrorCode::kLimit);
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += "d/";
  EXPECT_EQ(code(Tar().file(deep + "f")), ErrorCode::kLimit);
  // Deeper than any one name, by way of a link.
  std::string half = deep.substr(0, 400);
  EXPECT_EQ(code(Tar().file(half + "f").symlink("l", half).file("l/" + half + "f")), ErrorCode::kLimit);
  EXPECT_EQ(code(Tar().file("a").file("b").file("c"), {.entries = 2}), ErrorCode::kLimit);
  EXPECT_EQ(code(Tar().file("a", "123").file("b", "456"), {.total_bytes = 5}), ErrorCode::kLimit);
  EXPECT_EQ(code(Tar().add({.name = "a", .xattrs = {{"user.x", std::string(5000, 'v')}}})),
            ErrorCode::kLimit);
  EXPECT_EQ(code(Tar().add({.name = "a", .size = std::uint64_t{1} << 60U, .sparse = true})),
            ErrorCode::kLimit);
  EXPECT_EQ(code(Tar().add({.name = "a", .type = 'c', .device_major = 5000})), ErrorCode::kIntegrity);
  EXPECT_EQ(code(Tar().symlink("a", "")), ErrorCode::kIntegrity);
  EXPECT_EQ(code(Tar().file(".")), ErrorCode::kIntegrity);
}

TEST(Layer, LinksThatTakeForeverToFollowAreRefused) {
  // Each name goes through a target of two thousand steps, forty times over.
  std::string slow = "/";
  for (int i = 0; i < 680; ++i) slow += "a/../";
  Tar tar;
  tar.dir("a");
  for (int i = 0; i < 39; ++i) tar.symlink("s" + std::to_string(i), slow + "s" + std::to_string(i + 1));
  tar.symlink("s39", "a");
  for (int i = 0; i < 6000; ++i) tar.file("s0/x");
  EXPECT_EQ(refused({tar.bytes()}).code, ErrorCode::kLimit);
}

TEST(Layer, AttributesOfUnionFileSystemsAreDropped) {
  const Disk disk = written(
      {Tar()
           .add({.name = "a",
                 .xattrs = {{"trusted.overlay.opaque", "y"}, {"odd.x", "1"}, {"user.x", ""}, {"user.", "1"}}})
           .bytes()});
  EXPECT_EQ(disk.xattr("/a", "trusted.overlay.opaque"), "(missing)");
  EXPECT_EQ(disk.xattr("/a", "user.x"), "");
}

TEST(Layer, ErrorsShowNamesThatATerminalSurvives) {
  const Error error = refused({Tar().file("\x1b]0;owned\x07/../x").bytes()});
  EXPECT_EQ(error.message.find('\x1b'), std::string::npos);
  EXPECT_THAT(error.message, HasSubstr("?]0;owned?"));
}

}  // namespace
}  // namespace drupe::testing
