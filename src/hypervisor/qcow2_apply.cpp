#include "hypervisor/qcow2.h"

// Source: qemu's docs/interop/qcow2.txt, version 3.
#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "hypervisor/hypervisor.h"

namespace drupe {
namespace {

constexpr std::uint64_t kCluster = 65536;
constexpr std::uint64_t kSubcluster = kCluster / 32;
constexpr std::uint64_t kOffsetMask = 0x00fffffffffffe00ULL;
constexpr std::uint64_t kCompressed = 1ULL << 62;
constexpr std::uint64_t kPlainZero = 1;

std::unexpected<Error> damaged() {
  return fail(ErrorCode::kIntegrity, "A disk file of the sandbox is damaged");
}

/// One node over one raw file. Everything in the node is hostile.
class Applier {
 public:
  Applier(int node, int raw, std::uint64_t limit, const NodeHeader& header, std::uint64_t file_bytes)
      : node_(node),
        raw_(raw),
        left_(limit),
        disk_bytes_(header.disk_bytes),
        file_bytes_(file_bytes),
        extended_(header.layout == NodeLayout::kSubclusters),
        per_table_(kCluster / (extended_ ? 16 : 8)) {}

  Status run() {
    std::array<std::uint64_t, 2> geometry{};
    DRUPE_TRY(read_geometry(geometry));
    const auto [l1_entries, l1_at] = geometry;
    const std::uint64_t needed = (disk_bytes_ + per_table_ * kCluster - 1) / (per_table_ * kCluster);
    if (l1_entries < needed || l1_at % kCluster != 0) return damaged();
    DRUPE_ASSIGN(const auto l1, numbers(l1_at, needed));
    for (std::uint64_t i = 0; i < needed; ++i)
      if (const std::uint64_t table = l1[i] & kOffsetMask; table != 0)
        DRUPE_TRY(apply_table(table, i * per_table_ * kCluster));
    return flush();
  }

 private:
  Status read_geometry(std::array<std::uint64_t, 2>& out) {
    std::array<std::uint8_t, 48> head{};
    if (::pread(node_, head.data(), head.size(), 0) != static_cast<ssize_t>(head.size())) return damaged();
    // read_qcow2_header() has looked at the rest; clusters of another size would be another format.
    if (head[23] != 16 || head[22] != 0 || head[21] != 0 || head[20] != 0) return damaged();
    for (std::size_t i = 36; i < 40; ++i) out[0] = out[0] << 8 | head.at(i);
    for (std::size_t i = 40; i < 48; ++i) out[1] = out[1] << 8 | head.at(i);
    return {};
  }

  Result<std::vector<std::uint64_t>> numbers(std::uint64_t at, std::uint64_t count) {
    std::vector<std::uint64_t> out(count);
    const std::uint64_t bytes = count * 8;
    if (at > file_bytes_ || bytes > file_bytes_ - at) return damaged();
    if (::pread(node_, out.data(), bytes, static_cast<off_t>(at)) != static_cast<ssize_t>(bytes))
      return damaged();
    for (std::uint64_t& value : out) value = __builtin_bswap64(value);
    return out;
  }

  Status apply_table(std::uint64_t table, std::uint64_t guest_at) {
    if (table % kCluster != 0) return damaged();
    DRUPE_ASSIGN(const auto entries, numbers(table, kCluster / 8));
    for (std::uint64_t i = 0; i < per_table_ && guest_at < disk_bytes_; ++i, guest_at += kCluster) {
      const std::uint64_t entry = entries[extended_ ? 2 * i : i];
      if ((entry & kCompressed) != 0) return damaged();
      const std::uint64_t data = entry & kOffsetMask;
      if (!extended_) {
        if ((entry & kPlainZero) != 0)
          DRUPE_TRY(zero(guest_at, kCluster));
        else if (data != 0)
          DRUPE_TRY(copy(data, guest_at, kCluster));
        continue;
      }
      const std::uint64_t bitmap = entries[2 * i + 1];
      for (std::uint64_t bit = 0; bit < 32 && bitmap != 0; ++bit) {
        const std::uint64_t at = guest_at + bit * kSubcluster;
        if ((bitmap >> (32 + bit) & 1) != 0)
          DRUPE_TRY(zero(at, kSubcluster));
        else if ((bitmap >> bit & 1) != 0)
          DRUPE_TRY(data == 0 ? Status(damaged()) : copy(data + bit * kSubcluster, at, kSubcluster));
      }
    }
    return {};
  }

  Status zero(std::uint64_t at, std::uint64_t size) {
    if (at >= disk_bytes_) return {};
    size = std::min(size, disk_bytes_ - at);
    DRUPE_TRY(flush());
    if (::fallocate(raw_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at),
                    static_cast<off_t>(size)) != 0)
      return fail_sys("Making a hole in a disk failed", errno);
    return {};
  }

  /// Remembers the piece, so that neighbours are copied at once.
  Status copy(std::uint64_t from, std::uint64_t to, std::uint64_t size) {
    if (to >= disk_bytes_) return {};
    size = std::min(size, disk_bytes_ - to);
    if (from > file_bytes_ || size > file_bytes_ - from) return damaged();
    if (size > left_) return fail(ErrorCode::kLimit, "The disk holds more than an image may have");
    left_ -= size;
    if (pending_ != 0 && from == from_ + pending_ && to == to_ + pending_) {
      pending_ += size;
      return {};
    }
    DRUPE_TRY(flush());
    from_ = from;
    to_ = to;
    pending_ = size;
    return {};
  }

  Status flush() {
    while (pending_ != 0) {
      auto in = static_cast<off64_t>(from_);
      auto out = static_cast<off64_t>(to_);
      const ssize_t done = ::copy_file_range(node_, &in, raw_, &out, pending_, 0);
      if (done < 0 && errno != EINTR) {
        DRUPE_TRY(copy_by_hand());
        continue;
      }
      if (done == 0) return damaged();
      if (done > 0) advance(static_cast<std::uint64_t>(done));
    }
    return {};
  }
  /// Where the kernel does not copy between these file systems.
  Status copy_by_hand() {
    std::array<char, kCluster> buffer{};
    const std::size_t want = std::min<std::uint64_t>(buffer.size(), pending_);
    const ssize_t got = ::pread(node_, buffer.data(), want, static_cast<off_t>(from_));
    if (got < 0) return fail_sys("Reading a disk file failed", errno);
    if (got == 0) return damaged();
    DRUPE_TRY(pwrite_all(raw_, std::string_view(buffer.data(), static_cast<std::size_t>(got)), to_));
    advance(static_cast<std::uint64_t>(got));
    return {};
  }
  void advance(std::uint64_t count) {
    from_ += count;
    to_ += count;
    pending_ -= count;
  }

  int node_, raw_;
  std::uint64_t left_, disk_bytes_, file_bytes_;
  bool extended_;
  std::uint64_t per_table_;  ///< Clusters that one L2 table maps.
  std::uint64_t from_ = 0, to_ = 0, pending_ = 0;
};

}  // namespace

Status apply_qcow2(int node, int raw, std::uint64_t limit) {
  DRUPE_ASSIGN(const NodeHeader header, read_qcow2_header(node));
  struct stat of_node{};
  struct stat of_raw{};
  if (::fstat(node, &of_node) != 0 || ::fstat(raw, &of_raw) != 0)
    return fail_sys("Looking at a disk file failed", errno);
  if (header.disk_bytes > static_cast<std::uint64_t>(of_raw.st_size)) return damaged();
  return Applier(node, raw, limit, header, static_cast<std::uint64_t>(of_node.st_size)).run();
}

}  // namespace drupe
