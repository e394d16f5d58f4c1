// Any bytes as a tar stream, applied as two layers: no crash, no escape from the tree's invariants, and no
// block that is marked twice, freed twice or left marked by what has gone.
#include <cstdlib>
#include <set>

#include <sys/mman.h>
#include <unistd.h>

#include "base/tar_decode.h"
#include "image/layer.h"

namespace {

/// A small block map that checks every change.
class CheckedMap : public drupe::BlockMap {
 public:
  drupe::BlockRange find_free(std::uint64_t from, std::uint64_t most) override {
    for (std::uint64_t first = from; first < kBlocks; ++first) {
      if (used_.contains(first)) continue;
      std::uint64_t count = 1;
      while (count < most && first + count < kBlocks && !used_.contains(first + count)) ++count;
      return {.logical = 0, .physical = first, .count = count};
    }
    return {};
  }
  void mark(std::uint64_t physical, std::uint64_t count, bool used) override {
    for (std::uint64_t i = physical; i < physical + count; ++i) {
      const bool changed = used ? used_.insert(i).second : used_.erase(i) == 1;
      if (!changed || i >= kBlocks) std::abort();
    }
  }
  [[nodiscard]] std::size_t used() const { return used_.size(); }

 private:
  static constexpr std::uint64_t kBlocks = 256;
  std::set<std::uint64_t> used_;
};

/// Counts names and blocks below `dir`; a file's blocks count once.
void count(const drupe::Inode& dir, std::uint32_t depth, std::uint64_t& names,
           std::set<const drupe::Inode*>& inodes) {
  if (dir.depth != depth || depth > 16) std::abort();
  for (const auto& [name, entry] : dir.children) {
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.size() > 255)
      std::abort();
    ++names;
    const bool first = inodes.insert(entry.inode).second;
    if (entry.inode->type == 'd') {
      if (!first) std::abort();
      count(*entry.inode, depth + 1, names, inodes);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int disk = ::memfd_create("disk", MFD_CLOEXEC);
  CheckedMap map;
  drupe::DiskSpace space(disk, map);
  drupe::ImageTree tree(space, 16);
  drupe::DiskLimits limits;
  limits.entries = 200;
  limits.depth = 16;
  drupe::LayerTotals totals;
  const std::size_t half = size / 1024 * 512;
  for (int layer = 1; layer <= 2; ++layer) {
    const drupe::ByteView part(data + (layer == 1 ? 0 : half), layer == 1 ? half : size - half);
    drupe::LayerApplier applier(tree, space, limits, totals, layer);
    drupe::TarDecoder decoder(
        {.on_entry = [&](const drupe::TarEntry& entry) { return applier.entry(entry); },
         .on_data = [&](std::uint64_t offset, drupe::ByteView bytes) { return applier.data(offset, bytes); },
         .on_entry_end = nullptr},
        {.metadata = 65536, .extents = 4096});
    if (!decoder.feed(part)) break;
  }
  std::uint64_t names = 0;
  std::set<const drupe::Inode*> inodes;
  count(tree.root(), 0, names, inodes);
  if (names != tree.entries()) std::abort();
  std::uint64_t blocks = 0;
  for (const drupe::Inode* inode : inodes)
    for (const drupe::BlockRange& range : inode->blocks) blocks += range.count;
  if (blocks != map.used()) std::abort();
  return 0;
}
