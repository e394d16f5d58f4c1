#include "image/debian.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "image/build_folder.h"
#include "image/debian_host.h"
#include "image/disk_testing.h"
#include "image/mmdebstrap.h"
#include "image/npm_layer.h"
#include "image/recipe.h"

namespace drupe::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Recipe, ReadsEveryKeyword) {
  const auto recipe = parse_recipe(
      "# comment\n\nsuite bookworm # too\npackages a b\npackages libc++1-19\nnpm 10.9.4 sha512-abc==\npip "
      "x.lock 3.11\n"
      "remove etc/x\nenv A=b=c\nworkdir /root\ncmd sh -c  x");
  ASSERT_TRUE(recipe) << to_string(recipe.error());
  EXPECT_EQ(recipe->suite, "bookworm");
  EXPECT_THAT(recipe->packages, ElementsAre("a", "b", "libc++1-19"));
  EXPECT_EQ(recipe->npm_version, "10.9.4");
  EXPECT_EQ(recipe->npm_integrity, "sha512-abc==");
  EXPECT_EQ(recipe->pip_lock, "x.lock");
  EXPECT_EQ(recipe->pip_python, "3.11");
  EXPECT_THAT(recipe->removed, ElementsAre("etc/x"));
  EXPECT_THAT(recipe->env, ElementsAre("A=b=c"));
  EXPECT_EQ(recipe->working_dir, "/root");
  EXPECT_THAT(recipe->cmd, ElementsAre("sh", "-c", "x"));
}

TEST(Recipe, WhatIsNotUnderstoodIsNamedByItsLine) {
  for (const char* line : {"packages", "packages --hook=x", "packages a,b", "suite", "suite A", "suite a b",
                           "npm 1", "npm 1 md5-x", "pip", "pip x.lock", "pip ../x 3.11", "pip x.lock --pre",
                           "remove /etc", "remove a/../..", "env A", "env =b", "workdir x", "what x"}) {
    const auto recipe = parse_recipe("suite bookworm\n" + std::string(line) + "\n");
    ASSERT_FALSE(recipe) << line;
    EXPECT_THAT(recipe.error().message, HasSubstr("Line 2"));
  }
  EXPECT_FALSE(parse_recipe("packages a"));
}

TEST(Recipe, TheTreesOwnAreRightAndUnknownNamesListThem) {
  const auto names = debian_recipes();
  EXPECT_THAT(names, ElementsAre("debian:12", "debian:13", "devbox:1", "lfx:1"));
  const auto folder = recipe_folder();
  ASSERT_TRUE(folder) << to_string(folder.error());
  for (const std::string& name : names) EXPECT_TRUE(load_recipe(*folder, name)) << name;
  for (const char* name : {"devbox", "devbox:2", "../devbox:1", "a/b:1", ":", ""}) {
    const auto missing = load_recipe(*folder, name);
    ASSERT_FALSE(missing) << name;
    EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
    EXPECT_THAT(missing.error().next_step, HasSubstr("devbox:1"));
  }
}

TEST(DebianHost, FindsTheMirrorInBothFormsOfSources) {
  const DebianMirror lines = find_mirror(
      "# deb http://no.example/debian x main\ndeb https://apt.example/other x main\n"
      "deb [arch=amd64 signed-by=/k] http://one.example/debian/ bookworm main\n"
      "deb http://two.example/debian bookworm main\ndeb http://one.example/debian-security bookworm-security "
      "main\n");
  EXPECT_EQ(lines.archive, "http://one.example/debian");
  EXPECT_EQ(lines.security, "http://one.example/debian-security");
  const DebianMirror stanzas = find_mirror("Types: deb\nURIs: http://m.example/debian\nSuites: bookworm\n");
  EXPECT_EQ(stanzas.archive, "http://m.example/debian");
  EXPECT_EQ(stanzas.security, "");
  EXPECT_THAT(source_lines(stanzas, "trixie"),
              ElementsAre("deb http://m.example/debian trixie main",
                          "deb http://m.example/debian trixie-updates main"));
  EXPECT_EQ(source_lines(lines, "trixie").size(), 3U);
}

TEST(DebianHost, TheEnvironmentNamesAnotherMirror) {
  ::setenv("DRUPE_DEBIAN_MIRROR", "http://mine.example/d/", 1);
  const auto mirror = host_mirror();
  ::unsetenv("DRUPE_DEBIAN_MIRROR");
  ASSERT_TRUE(mirror);
  EXPECT_EQ(mirror->archive, "http://mine.example/d");
  EXPECT_EQ(mirror->security, "");
  ::setenv("DRUPE_NPM_REGISTRY", "http://npm.example/", 1);
  EXPECT_EQ(npm_registry().value_or(""), "http://npm.example");
  ::unsetenv("DRUPE_NPM_REGISTRY");
}

TEST(DebianHost, SubordinateIdsAreTheUsersOwnAndEnough) {
  const std::string ids = "alice:100000:65536\nbob:200000:1000\n1234:300000:65536\nbroken\n:1:2\n";
  EXPECT_TRUE(has_subordinate_ids(ids, "alice", 1));
  EXPECT_FALSE(has_subordinate_ids(ids, "bob", 2));
  EXPECT_TRUE(has_subordinate_ids(ids, "carol", 1234));
  EXPECT_FALSE(has_subordinate_ids(ids, "ali", 3));
  EXPECT_FALSE(has_subordinate_ids("", "alice", 1));
}

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(bytes.size() + 1000, '\0');
  std::string in = bytes;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST(Npm, ItsPackageBecomesALayer) {
  Tar package;
  package.add({.name = "package/bin/npm-cli.js", .mode = 0755, .mtime_ns = 499'162'500'000'000'000},
              "#!node");
  package.add({.name = "package/package.json", .mode = 0600, .uid = 501}, "{}").dir("package/ignored");
  const auto layer = npm_layer(gzip(package.bytes()));
  ASSERT_TRUE(layer) << to_string(layer.error());
  Disk disk;
  ASSERT_TRUE(disk.write({*layer + tar_end()}));
  EXPECT_EQ(disk.read("/usr/lib/node_modules/npm/bin/npm-cli.js"), "#!node");
  EXPECT_EQ(disk.stat("/usr/lib/node_modules/npm/bin/npm-cli.js").mode, 0100755U);
  EXPECT_EQ(disk.stat("/usr/lib/node_modules/npm/package.json").mode, 0100644U);
  EXPECT_EQ(disk.stat("/usr/lib/node_modules/npm/package.json").uid, 0U);
  EXPECT_EQ(disk.read("/usr/bin/npx"), "../lib/node_modules/npm/bin/npx-cli.js");
  EXPECT_FALSE(npm_layer(gzip(Tar().file("odd").bytes())));
  EXPECT_FALSE(npm_layer("not gzip"));
}

TEST(Npm, IntegrityIsSha512InBase64) {
  // printf abc | openssl dgst -sha512 -binary | base64 -w0
  const std::string right =
      "sha512-3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw==";
  EXPECT_TRUE(has_integrity("abc", right));
  EXPECT_FALSE(has_integrity("abd", right));
  EXPECT_FALSE(has_integrity("abc", ""));
}

class Mmdebstrap : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto mode = build_mode();
    if (!mode) GTEST_SKIP() << to_string(mode.error());
    request_ = {.mode = *mode,
                .suite = "bookworm",
                .packages = {},
                // A mirror that is not there.
                .sources = {"deb file:///nonexistent/debian bookworm main"}};
  }
  Result<std::size_t> read_all_of(ByteSource& source) {
    std::vector<std::uint8_t> buffer(1 << 16);
    while (true) {
      auto got = source.read(buffer);
      if (!got || *got == 0) return got;
    }
  }
  MmdebstrapRequest request_;
};

TEST_F(Mmdebstrap, ItsFailureIsAnErrorWithWhatItSaid) {
  std::vector<std::string> steps;
  request_.on_progress = [&steps](const Progress& progress) { steps.push_back(progress.what); };
  const auto source = run_mmdebstrap(request_);
  ASSERT_TRUE(source) << to_string(source.error());
  const auto end = read_all_of(**source);
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(end.error().message, HasSubstr("nonexistent"));
  EXPECT_THAT(end.error().next_step, HasSubstr("DRUPE_DEBIAN_MIRROR"));
  EXPECT_THAT(steps, Contains("Building: running apt-get update"));
}

TEST_F(Mmdebstrap, ACancelEndsItAndLeavesNothing) {
  std::string folder = (std::filesystem::temp_directory_path() / "cancel-test.XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(::chmod(folder.c_str(), 0711), 0);
  ::setenv("TMPDIR", folder.c_str(), 1);
  std::atomic<bool> stop = false;
  request_.cancel = &stop;
  request_.on_progress = [&](const Progress&) { stop = true; };  // As soon as it is at work.
  auto source = run_mmdebstrap(request_);
  ::unsetenv("TMPDIR");
  ASSERT_TRUE(source) << to_string(source.error());
  EXPECT_FALSE(std::filesystem::is_empty(folder));
  const auto end = read_all_of(**source);
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code, ErrorCode::kCancelled);
  source->reset();
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_TRUE(remove_tree(AT_FDCWD, folder));
}

TEST(BuildFolder, WhatAKilledProgramLeftIsRemovedByTheNext) {
  std::string parent = (std::filesystem::temp_directory_path() / "folder-test.XXXXXX").string();
  ASSERT_NE(::mkdtemp(parent.data()), nullptr);
  ::setenv("TMPDIR", parent.c_str(), 1);
  std::filesystem::create_directories(parent + "/drupe-build.left/deep");
  std::filesystem::create_directories(parent + "/other");
  {
    const auto folder = BuildFolder::make();
    ASSERT_TRUE(folder) << to_string(folder.error());
    EXPECT_FALSE(std::filesystem::exists(parent + "/drupe-build.left"));
    EXPECT_TRUE(std::filesystem::exists(parent + "/other"));
    const auto second = BuildFolder::make();
    ASSERT_TRUE(second);
    EXPECT_TRUE(std::filesystem::exists(folder->path()));  // It is in use.
    std::filesystem::create_directories(second->path() + "/a/b");
  }
  ::unsetenv("TMPDIR");
  EXPECT_TRUE(std::filesystem::exists(parent + "/other"));
  std::filesystem::remove(parent + "/other");
  EXPECT_TRUE(std::filesystem::is_empty(parent));
  EXPECT_TRUE(remove_tree(AT_FDCWD, parent));
}

}  // namespace
}  // namespace drupe::testing
