#include "base/tar_encode.h"

#include <gtest/gtest.h>

namespace drupe {
namespace {

std::string field(const std::string& block, std::size_t offset, std::size_t width) {
  return std::string(block.substr(offset, width).c_str());
}

bool checksum_is_right(const std::string& block) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kTarBlock; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(block[i]);
  return std::stoull(field(block, 148, 8), nullptr, 8) == sum;
}

TEST(TarEncode, AnOrdinaryFileIsOneHeader) {
  const std::string bytes = encode_tar_entry(
      {.name = "a/b", .mode = 04755, .uid = 7, .gid = 8, .size = 1000, .mtime_ns = 5'000'000'000});
  ASSERT_EQ(bytes.size(), kTarBlock);
  EXPECT_EQ(field(bytes, 0, 100), "a/b");
  EXPECT_EQ(field(bytes, 100, 8), "0004755");
  EXPECT_EQ(field(bytes, 124, 12), "00000001750");
  EXPECT_EQ(field(bytes, 136, 12), "00000000005");
  EXPECT_EQ(bytes[156], '0');
  EXPECT_TRUE(checksum_is_right(bytes));
  EXPECT_EQ(tar_padding(1000), 24U);
  EXPECT_EQ(tar_padding(1024), 0U);
}

TEST(TarEncode, WhatDoesNotFitIsAPaxRecord) {
  const std::string name(300, 'n');
  const std::string bytes = encode_tar_entry(
      {.name = name, .uid = 1U << 22U, .size = std::uint64_t{1} << 34, .mtime_ns = -1'500'000'000});
  ASSERT_EQ(bytes.size(), 3 * kTarBlock);
  EXPECT_EQ(bytes[156], 'x');
  EXPECT_TRUE(checksum_is_right(bytes));
  EXPECT_TRUE(checksum_is_right(bytes.substr(2 * kTarBlock)));
  const std::string records = bytes.substr(kTarBlock, kTarBlock);
  EXPECT_NE(records.find("310 path=" + name + "\n"), std::string::npos);
  EXPECT_NE(records.find(" size=17179869184\n"), std::string::npos);
  EXPECT_NE(records.find(" uid=4194304\n"), std::string::npos);
  EXPECT_NE(records.find(" mtime=-1.500000000\n"), std::string::npos);
}

TEST(TarEncode, ARecordCountsItsOwnLength) {
  // 99 is the length where one more digit makes the record longer than its digits said.
  for (std::size_t size = 101; size < 120; ++size) {
    const std::string bytes = encode_tar_entry({.name = std::string(size, 'x')});
    const std::string records = bytes.substr(kTarBlock, kTarBlock);
    EXPECT_EQ(records[std::stoul(records) - 1], '\n') << size;
    EXPECT_EQ(records[std::stoul(records)], '\0') << size;
  }
}

TEST(TarEncode, HolesAreNotStored) {
  const TarEntry entry{.name = "s", .size = 1 << 30, .sparse = true, .extents = {{4096, 10}, {1 << 29, 20}}};
  const std::string bytes = encode_tar_entry(entry);
  EXPECT_EQ(tar_data_size(entry), 30U);
  ASSERT_EQ(bytes.size(), 4 * kTarBlock);
  EXPECT_NE(bytes.find("GNU.sparse.realsize=1073741824\n"), std::string::npos);
  EXPECT_EQ(field(bytes, 3 * kTarBlock, kTarBlock), "2\n4096\n10\n536870912\n20\n");
  EXPECT_EQ(std::stoul(field(bytes, 2 * kTarBlock + 124, 12), nullptr, 8), kTarBlock + 30);
}

TEST(TarEncode, FoldersLinksAndTheEnd) {
  EXPECT_EQ(field(encode_tar_entry({.name = "d", .type = 'd'}), 0, 100), "d/");
  const std::string link = encode_tar_entry({.name = "l", .type = 'l', .link = "../x"});
  EXPECT_EQ(link[156], '2');
  EXPECT_EQ(field(link, 157, 100), "../x");
  EXPECT_EQ(encode_tar_entry({.name = "h", .type = 'h', .link = "f"})[156], '1');
  EXPECT_EQ(tar_end(), std::string(1024, '\0'));
}

}  // namespace
}  // namespace drupe
