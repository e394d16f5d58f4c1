// Any sequence of entries, in several layers: no crash, no escape from the tree's invariants, and no
// block that is marked twice, freed twice or left marked by what has gone.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

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

/// Turns the fuzzer's bytes into entries. Names come from a small alphabet, so that they meet.
class Script {
 public:
  explicit Script(drupe::ByteView bytes) : rest_(bytes) {}
  [[nodiscard]] bool done() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const std::uint8_t value = rest_[0];
    rest_ = rest_.subspan(1);
    return value;
  }
  std::string path() {
    static constexpr std::array<const char*, 16> kParts{"a",   "b",  "c",     "d",     "e/",           "/",
                                                        "..",  ".",  ".wh.a", ".wh.b", ".wh..wh..opq", ".wh.",
                                                        "a/b", "/a", "f",     "c/../d"};
    std::string text;
    for (int parts = 1 + byte() % 4; parts > 0; --parts)
      text += std::string(kParts[byte() % kParts.size()]) + "/";
    text.pop_back();
    return text;
  }

 private:
  drupe::ByteView rest_;
};

drupe::TarEntry next_entry(Script& script) {
  constexpr std::string_view kTypes = "ffddllhhcbp";
  drupe::TarEntry entry;
  entry.type = kTypes[script.byte() % kTypes.size()];
  entry.name = script.path();
  if (entry.type == 'l' || entry.type == 'h') entry.link = script.path();
  if (entry.type != 'f') return entry;
  entry.size = script.byte() * 64U;
  entry.sparse = script.byte() % 4 == 0;
  for (std::uint64_t at = 0; entry.sparse && at < entry.size; at += 700)
    entry.extents.push_back({at, std::min<std::uint64_t>(script.byte(), entry.size - at)});
  return entry;
}

/// All data of `entry`, in its places.
drupe::Status put_data(drupe::LayerApplier& applier, const drupe::TarEntry& entry) {
  const std::vector<std::uint8_t> data(entry.size, 'x');
  if (!entry.sparse) return data.empty() ? drupe::Status() : applier.data(0, data);
  for (const drupe::TarExtent& extent : entry.extents)
    if (extent.length > 0) DRUPE_TRY(applier.data(extent.offset, drupe::ByteView(data).first(extent.length)));
  return {};
}

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
  limits.depth = 16;
  drupe::LayerTotals totals;
  Script script(drupe::ByteView(data, size));
  for (int layer = 1; layer <= 4 && !script.done(); ++layer) {
    drupe::LayerApplier applier(tree, space, limits, totals, layer);
    for (int entries = script.byte() % 32; entries > 0 && !script.done(); --entries) {
      const drupe::TarEntry entry = next_entry(script);
      // A refused entry ends a real image; here the next one shows what it has left behind.
      if (!applier.entry(entry)) continue;
      const bool kept = entry.type == 'f' && entry.name.find(".wh.") == std::string::npos;
      if (kept && !put_data(applier, entry)) std::abort();
    }
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
