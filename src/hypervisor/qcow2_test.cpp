#include "hypervisor/qcow2.h"

#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "base/files.h"
#include "hypervisor/hypervisor.h"

namespace drupe {
namespace {

std::uint64_t number(const std::string& bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

std::string written(std::uint64_t disk_bytes, NodeLayout layout = NodeLayout::kSubclusters) {
  const UniqueFd file(::memfd_create("qcow2", MFD_CLOEXEC));
  EXPECT_TRUE(write_empty_qcow2(file.get(), disk_bytes, layout));
  EXPECT_EQ(::lseek(file.get(), 0, SEEK_SET), 0);
  return read_all(file.get(), 64U << 20).value_or("");
}

TEST(Qcow2, HeaderSaysWhatTheFormatAsksFor) {
  const auto bytes = written(8ULL << 30);
  ASSERT_GE(bytes.size(), 4U * 65536);
  EXPECT_EQ(number(bytes, 0, 4), 0x514649fbU);
  EXPECT_EQ(number(bytes, 4, 4), 3U);
  EXPECT_EQ(number(bytes, 8, 8), 0U) << "a backing name would be followed";
  EXPECT_EQ(number(bytes, 20, 4), 16U);
  EXPECT_EQ(number(bytes, 24, 8), 8ULL << 30);
  EXPECT_EQ(number(bytes, 32, 4), 0U) << "not encrypted";
  EXPECT_EQ(number(bytes, 36, 4), 32U) << "one L1 entry for 256 MiB with 16-byte L2 entries";
  EXPECT_EQ(number(bytes, 40, 8) % 65536, 0U);
  EXPECT_EQ(number(bytes, 72, 8), 16U) << "extended L2 entries";
  EXPECT_EQ(number(bytes, 100, 4), 104U);
}

TEST(Qcow2, ANodeToFlattenIntoHasNoSubclusters) {
  const auto bytes = written(8ULL << 30, NodeLayout::kClusters);
  EXPECT_EQ(number(bytes, 72, 8), 0U);
  EXPECT_EQ(number(bytes, 36, 4), 16U) << "one L1 entry for 512 MiB with 8-byte L2 entries";
}

TEST(Qcow2, ItsOwnHeadersAreRead) {
  for (const auto layout : {NodeLayout::kSubclusters, NodeLayout::kClusters}) {
    const UniqueFd file(::memfd_create("qcow2", MFD_CLOEXEC));
    ASSERT_TRUE(write_empty_qcow2(file.get(), 8ULL << 30, layout));
    const auto header = read_qcow2_header(file.get());
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_EQ(header->disk_bytes, 8ULL << 30);
    EXPECT_EQ(header->layout, layout);
  }
}

// A taken-over hypervisor's header must not make those of its forks open files of its choice.
TEST(Qcow2, FeaturesThatNobodyAskedForAreRefused) {
  const UniqueFd file(::memfd_create("qcow2", MFD_CLOEXEC));
  ASSERT_TRUE(write_empty_qcow2(file.get(), 1ULL << 30));
  const auto with = [&file](std::uint64_t at, char byte) {
    char before = 0;
    EXPECT_EQ(::pread(file.get(), &before, 1, static_cast<off_t>(at)), 1);
    EXPECT_TRUE(pwrite_all(file.get(), std::string(1, byte), at));
    const auto header = read_qcow2_header(file.get());
    EXPECT_TRUE(pwrite_all(file.get(), std::string(1, before), at));
    return header.has_value();
  };
  EXPECT_TRUE(with(79, 0x11)) << "left open, with subclusters";
  EXPECT_FALSE(with(79, 0x14)) << "data in another file";
  EXPECT_FALSE(with(79, 0x12)) << "marked corrupt";
  EXPECT_FALSE(with(72, 1)) << "unknown";
  EXPECT_FALSE(with(35, 2)) << "encrypted";
  EXPECT_FALSE(with(0, 'X')) << "another format";
  ASSERT_EQ(::ftruncate(file.get(), 79), 0);
  EXPECT_FALSE(read_qcow2_header(file.get()));
}

TEST(Qcow2, EveryClusterOfTheFileIsCounted) {
  for (const std::uint64_t size : {512ULL, 8ULL << 30, 16ULL << 40}) {
    const auto bytes = written(size);
    ASSERT_EQ(bytes.size() % 65536, 0U);
    const std::size_t clusters = bytes.size() / 65536;
    const std::size_t block = number(bytes, number(bytes, 48, 8), 8);
    for (std::size_t i = 0; i < 32768; ++i)
      EXPECT_EQ(number(bytes, block + i * 2, 2), i < clusters ? 1U : 0U)
          << "cluster " << i << " of " << clusters;
    EXPECT_GE(number(bytes, 36, 4) * (256ULL << 20), size);
    EXPECT_LE(number(bytes, 40, 8) + number(bytes, 36, 4) * 8, bytes.size())
        << "the L1 table is inside of the file";
  }
}

TEST(Qcow2, TakesNextToNoRoom) {
  const std::string path = testing::TempDir() + "empty.qcow2";
  const auto file = open_at(AT_FDCWD, path, O_RDWR | O_CREAT | O_TRUNC);
  ASSERT_TRUE(file);
  ASSERT_TRUE(write_empty_qcow2(file->get(), 8ULL << 30));
  struct stat info{};
  ASSERT_EQ(::fstat(file->get(), &info), 0);
  EXPECT_LE(info.st_blocks * 512, 65536);
  ::unlink(path.c_str());
}

TEST(Qcow2, SizesThatNoDiskHasAreRefused) {
  const UniqueFd file(::memfd_create("qcow2", MFD_CLOEXEC));
  for (const std::uint64_t size : {0ULL, 1ULL, 513ULL, (16ULL << 40) + 512, ~0ULL})
    EXPECT_EQ(write_empty_qcow2(file.get(), size).error().code, ErrorCode::kInvalidArgument) << size;
}

/// A node with one L2 table and two data clusters behind what write_empty_qcow2() wrote.
class BuiltNode {
 public:
  explicit BuiltNode(NodeLayout layout) : extended_(layout == NodeLayout::kSubclusters) {
    EXPECT_TRUE(write_empty_qcow2(file_.get(), kDisk, layout));
    EXPECT_EQ(::ftruncate(file_.get(), 8 * kCluster), 0);
    put(3 * kCluster, kTable);
    EXPECT_TRUE(pwrite_all(file_.get(), std::string(kCluster, 'a'), kData));
    EXPECT_TRUE(pwrite_all(file_.get(), std::string(kCluster, 'b'), kData + kCluster));
  }
  void entry(std::uint64_t index, std::uint64_t value, std::uint64_t bitmap = 0) {
    put(kTable + index * (extended_ ? 16 : 8), value);
    if (extended_) put(kTable + index * 16 + 8, bitmap);
  }
  void put(std::uint64_t at, std::uint64_t value) {
    value = __builtin_bswap64(value);
    EXPECT_TRUE(pwrite_all(file_.get(), std::string(reinterpret_cast<const char*>(&value), 8), at));
  }
  /// What a disk full of 'x' is with the node over it; empty after a failure.
  std::string over(std::uint64_t limit = kDisk) {
    const UniqueFd raw(::memfd_create("raw", MFD_CLOEXEC));
    EXPECT_TRUE(pwrite_all(raw.get(), std::string(kDisk, 'x'), 0));
    const auto applied = apply_qcow2(file_.get(), raw.get(), limit);
    error_ = applied ? ErrorCode::kHost : applied.error().code;
    if (!applied) return {};
    EXPECT_EQ(::lseek(raw.get(), 0, SEEK_SET), 0);
    return read_all(raw.get(), 2 * kDisk).value_or("");
  }
  [[nodiscard]] ErrorCode error() const { return error_; }

  static constexpr std::uint64_t kCluster = 65536, kDisk = 4 * kCluster;
  static constexpr std::uint64_t kTable = 4 * kCluster, kData = 5 * kCluster;

 private:
  UniqueFd file_{::memfd_create("qcow2", MFD_CLOEXEC)};
  bool extended_;
  ErrorCode error_ = ErrorCode::kHost;
};

TEST(Qcow2, WhatANodeHoldsCoversWhatLiesBelow) {
  constexpr std::size_t kSub = 2048;
  BuiltNode plain(NodeLayout::kClusters);
  plain.entry(0, BuiltNode::kData);
  plain.entry(2, 1);
  plain.entry(3, BuiltNode::kData + BuiltNode::kCluster);
  EXPECT_EQ(plain.over(), std::string(65536, 'a') + std::string(65536, 'x') + std::string(65536, '\0') +
                              std::string(65536, 'b'));
  BuiltNode fine(NodeLayout::kSubclusters);
  fine.entry(0, BuiltNode::kData, 0b101ULL | 1ULL << 33);
  EXPECT_EQ(fine.over().substr(0, 4 * kSub), std::string(kSub, 'a') + std::string(kSub, '\0') +
                                                 std::string(kSub, 'a') + std::string(kSub, 'x'));
}

TEST(Qcow2, ANodeOfATakenOverHypervisorIsRefused) {
  for (const std::uint64_t entry : {std::uint64_t{1} << 62 | BuiltNode::kData, BuiltNode::kCluster * 8,
                                    std::uint64_t{1} << 50, BuiltNode::kCluster * 7 + 512}) {
    BuiltNode node(NodeLayout::kClusters);
    node.entry(0, entry);
    EXPECT_EQ(node.over(), "") << entry;
    EXPECT_EQ(node.error(), ErrorCode::kIntegrity) << entry;
  }
  BuiltNode table(NodeLayout::kClusters);
  table.put(3 * BuiltNode::kCluster, BuiltNode::kCluster * 8);
  EXPECT_EQ(table.over(), "");
  BuiltNode unplaced(NodeLayout::kSubclusters);
  unplaced.entry(0, 0, 1);
  EXPECT_EQ(unplaced.over(), "");
  // The same data twice: what one file of little size can make others write is bounded.
  BuiltNode twice(NodeLayout::kClusters);
  twice.entry(0, BuiltNode::kData);
  twice.entry(1, BuiltNode::kData);
  EXPECT_EQ(twice.over(BuiltNode::kCluster), "");
  EXPECT_EQ(twice.error(), ErrorCode::kLimit);
}

}  // namespace
}  // namespace drupe
