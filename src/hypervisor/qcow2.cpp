// An empty qcow2 node. Source: qemu's docs/interop/qcow2.txt, version 3.
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include <unistd.h>

#include "base/files.h"
#include "hypervisor/hypervisor.h"

namespace drupe {
namespace {

constexpr std::uint32_t kMagic = 0x514649fb;
constexpr std::uint64_t kClusterBits = 16;
constexpr std::uint64_t kCluster = 1ULL << kClusterBits;
// Subclusters of 2 KiB: a write of 4 KiB is stored alone instead of copying the other 60 KiB of its cluster.
constexpr std::uint64_t kIncompatibleExtendedL2 = 1ULL << 4;
// Guest bytes that one L2 table maps: with entries of 8 bytes, or of 16 where they have subclusters.
constexpr std::uint64_t kBytesPerPlainTable = kCluster / 8 * kCluster;
constexpr std::uint64_t kBytesPerExtendedTable = kCluster / 16 * kCluster;
constexpr std::uint64_t kMaxDisk = 16ULL << 40;

constexpr std::uint64_t kRefcountTableAt = kCluster;
constexpr std::uint64_t kRefcountBlockAt = 2 * kCluster;
constexpr std::uint64_t kL1At = 3 * kCluster;

class BigEndian {
 public:
  BigEndian& u32(std::uint32_t value) { return raw(__builtin_bswap32(value)); }
  BigEndian& u64(std::uint64_t value) { return raw(__builtin_bswap64(value)); }
  BigEndian& u16(std::uint16_t value) { return raw(__builtin_bswap16(value)); }
  [[nodiscard]] const std::string& bytes() const { return out_; }

 private:
  template <class T>
  BigEndian& raw(T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out_.append(bytes, sizeof bytes);
    return *this;
  }
  std::string out_;
};

std::string header(std::uint64_t disk_bytes, std::uint32_t l1_entries, NodeLayout layout) {
  BigEndian out;
  out.u32(kMagic).u32(3);
  out.u64(0).u32(0);  // No backing name: the command line names the nodes.
  out.u32(static_cast<std::uint32_t>(kClusterBits)).u64(disk_bytes).u32(0);
  out.u32(l1_entries).u64(kL1At);
  out.u64(kRefcountTableAt).u32(1);
  out.u32(0).u64(0);  // No internal snapshots.
  out.u64(layout == NodeLayout::kSubclusters ? kIncompatibleExtendedL2 : 0).u64(0).u64(0);
  out.u32(4).u32(104);  // Refcounts of 16 bits; length of this header.
  out.u64(0);           // Header extensions: none.
  return out.bytes();
}

}  // namespace

Status write_empty_qcow2(int fd, std::uint64_t disk_bytes, NodeLayout layout) {
  if (disk_bytes == 0 || disk_bytes % 512 != 0 || disk_bytes > kMaxDisk)
    return fail(ErrorCode::kInvalidArgument,
                "A disk of " + std::to_string(disk_bytes) + " bytes cannot be made",
                "Choose a multiple of 512 bytes, at most 16 TiB.");
  const std::uint64_t table_bytes =
      layout == NodeLayout::kSubclusters ? kBytesPerExtendedTable : kBytesPerPlainTable;
  const std::uint64_t l1_entries = (disk_bytes + table_bytes - 1) / table_bytes;
  const std::uint64_t l1_clusters = (l1_entries * 8 + kCluster - 1) / kCluster;
  const std::uint64_t clusters = 3 + l1_clusters;
  // The L1 table is a hole: all entries unallocated.
  if (::ftruncate(fd, static_cast<off_t>(clusters * kCluster)) != 0)
    return fail_sys("Sizing an empty disk node failed", errno);
  BigEndian table;
  table.u64(kRefcountBlockAt);
  BigEndian block;
  for (std::uint64_t i = 0; i < clusters; ++i) block.u16(1);
  DRUPE_TRY(pwrite_all(fd, table.bytes(), kRefcountTableAt));
  DRUPE_TRY(pwrite_all(fd, block.bytes(), kRefcountBlockAt));
  return pwrite_all(fd, header(disk_bytes, static_cast<std::uint32_t>(l1_entries), layout), 0);
}

// Offsets: docs/interop/qcow2.txt of QEMU.
Result<NodeHeader> read_qcow2_header(int fd) {
  std::array<std::uint8_t, 80> bytes{};
  if (::pread(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return fail(ErrorCode::kIntegrity, "A disk file of the sandbox is too short");
  const auto number = [&bytes](std::size_t at, std::size_t size) {
    std::uint64_t value = 0;
    for (std::size_t i = at; i < at + size; ++i) value = value << 8 | bytes[i];
    return value;
  };
  if (number(0, 4) != kMagic)
    return fail(ErrorCode::kIntegrity, "A disk file of the sandbox is not a qcow2 file");
  constexpr std::uint64_t kNotClosed = 1;
  const std::uint64_t features = number(72, 8);
  if (number(32, 4) != 0 || (features & ~(kNotClosed | kIncompatibleExtendedL2)) != 0)
    return fail(ErrorCode::kIntegrity,
                "A disk file of the sandbox is damaged, or asks for what Drupe does not use");
  NodeHeader header;
  header.disk_bytes = number(24, 8);
  header.layout =
      (features & kIncompatibleExtendedL2) != 0 ? NodeLayout::kSubclusters : NodeLayout::kClusters;
  return header;
}

}  // namespace drupe
