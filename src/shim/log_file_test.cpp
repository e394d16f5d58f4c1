#include "shim/log_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "base/files.h"

namespace drupe {
namespace {

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(path_), nullptr);
    auto opened = open_at(AT_FDCWD, path_, O_DIRECTORY | O_RDONLY);
    ASSERT_TRUE(opened);
    dir_ = std::move(*opened);
  }
  void TearDown() override { ASSERT_TRUE(remove_tree(AT_FDCWD, path_)); }

  std::string text(std::uint64_t& offset) {
    std::string all;
    EXPECT_TRUE(read_log(dir_.get(), offset, [&](std::int64_t time_ns, Channel, std::string_view bytes) {
      EXPECT_GT(time_ns, 0);
      all.append(bytes);
      return true;
    }));
    return all;
  }
  std::uint64_t size_of(const char* name) {
    struct stat info{};
    return ::fstatat(dir_.get(), name, &info, 0) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
  }

  char path_[32] = "/tmp/drupe-log-XXXXXX";
  UniqueFd dir_;
};

TEST_F(LogTest, ANeverWrittenLogIsEmpty) {
  std::uint64_t offset = 0;
  EXPECT_EQ(text(offset), "");
}

TEST_F(LogTest, FollowsAndKeepsChannels) {
  auto writer = LogWriter::open(dir_.get());
  ASSERT_TRUE(writer);
  std::uint64_t offset = 0;
  writer->append(Channel::kStdout, "one");
  EXPECT_EQ(text(offset), "one");
  writer->append(Channel::kStderr, std::string("\0\xff", 2));
  std::vector<Channel> channels;
  ASSERT_TRUE(read_log(dir_.get(), offset, [&](std::int64_t, Channel channel, std::string_view bytes) {
    channels.push_back(channel);
    EXPECT_EQ(bytes, std::string_view("\0\xff", 2));
    return true;
  }));
  EXPECT_EQ(channels, std::vector<Channel>{Channel::kStderr});
  EXPECT_EQ(text(offset), "");
}

TEST_F(LogTest, KeepsTheNewestTenMebibytes) {
  auto writer = LogWriter::open(dir_.get());
  ASSERT_TRUE(writer);
  std::uint64_t follower = 0;
  std::string followed;
  for (int i = 0; i < 400; ++i) {
    writer->append(Channel::kStdout, std::string(60'000, static_cast<char>('a' + i % 26)));
    if (i % 50 == 49) followed += text(follower);
  }
  EXPECT_LE(size_of("log"), kLogFileSize);
  EXPECT_LE(size_of("log.1"), kLogFileSize);
  // 50 records of 60,016 bytes are less than one file: a follower that reads so often misses nothing.
  EXPECT_EQ(followed.size(), 400U * 60'000);
  std::uint64_t offset = 0;
  const std::string kept = text(offset);
  EXPECT_GT(kept.size(), kLogFileSize);
  EXPECT_EQ(kept, followed.substr(followed.size() - kept.size()));
  EXPECT_EQ(offset, follower);
}

TEST_F(LogTest, ATornRecordIsCutWhenTheSandboxStartsAgain) {
  {
    auto writer = LogWriter::open(dir_.get());
    ASSERT_TRUE(writer);
    writer->append(Channel::kStdout, "whole");
    writer->append(Channel::kStdout, "torn");
  }
  const auto file = open_at(dir_.get(), "log", O_WRONLY);
  ASSERT_TRUE(file);
  ASSERT_EQ(::ftruncate(file->get(), static_cast<off_t>(size_of("log") - 1)), 0);
  std::uint64_t offset = 0;
  EXPECT_EQ(text(offset), "whole");
  auto writer = LogWriter::open(dir_.get());
  ASSERT_TRUE(writer);
  writer->append(Channel::kStdout, "next");
  EXPECT_EQ(text(offset), "next");
}

TEST_F(LogTest, GarbageEndsTheReadingNotTheReader) {
  ASSERT_TRUE(replace_file(dir_.get(), "log", std::string(100'000, '\xff'), Sync::kNo));
  std::uint64_t offset = 0;
  EXPECT_EQ(text(offset), "");
}

TEST_F(LogTest, ALongWriteIsSplit) {
  auto writer = LogWriter::open(dir_.get());
  ASSERT_TRUE(writer);
  writer->append(Channel::kStdout, std::string(200'000, 'x'));
  std::uint64_t offset = 0;
  EXPECT_EQ(text(offset).size(), 200'000U);
}

TEST_F(LogTest, AFullDiskCostsOutputNotTheSandbox) {
  auto writer = LogWriter::open(dir_.get());
  ASSERT_TRUE(writer);
  // The directory is gone under it: rotation fails.
  ASSERT_TRUE(remove_tree(AT_FDCWD, path_));
  for (int i = 0; i < 200; ++i) writer->append(Channel::kStdout, std::string(60'000, 'x'));
  EXPECT_GT(writer->lost(), 0U);
}

}  // namespace
}  // namespace drupe
