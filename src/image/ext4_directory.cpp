#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "image/ext4_internal.h"

namespace drupe {
namespace {

constexpr std::size_t kTail = sizeof(ext2_dir_entry_tail);
constexpr std::size_t kRoom = kDiskBlock - kTail;
constexpr std::size_t kHeader = 8;  // Of a directory entry, before its name.
// Of a hash index's root: two entries of 12 bytes, the info of 8, and the sum at the end.
constexpr std::size_t kIndexStart = 32;
constexpr std::size_t kIndexLimit = (kDiskBlock - kIndexStart - sizeof(ext2_dx_tail)) / sizeof(ext2_dx_entry);

using Block = std::vector<char>;

struct Item {
  std::string_view name;
  std::uint32_t number = 0;
  int type = 0;
  std::uint32_t hash = 0;
};

std::size_t record_size(std::string_view name) {
  return (kHeader + name.size() + 3) / 4 * 4;
}

/// Puts entries one after the other; the last one reaches to the block's tail.
class BlockFiller {
 public:
  bool add(const Item& item) {
    const std::size_t size = record_size(item.name);
    if (used_ + size > kRoom) return false;
    put(used_, item, size);
    last_ = used_;
    used_ += size;
    return true;
  }
  [[nodiscard]] bool empty() const { return used_ == 0; }
  Block take(ext2_filsys fs) {
    // An empty block is one unused entry.
    const auto length = static_cast<std::uint16_t>(kRoom - last_);
    std::memcpy(block_.data() + last_ + 4, &length, sizeof length);
    ext2fs_initialize_dirent_tail(fs, reinterpret_cast<ext2_dir_entry_tail*>(block_.data() + kRoom));
    Block full = std::exchange(block_, Block(kDiskBlock));
    used_ = last_ = 0;
    return full;
  }
  /// Writes one entry of `length` bytes at `at`.
  void put(std::size_t at, const Item& item, std::size_t length) {
    const auto size = static_cast<std::uint16_t>(length);
    char* entry = block_.data() + at;
    std::memcpy(entry, &item.number, 4);
    std::memcpy(entry + 4, &size, 2);
    entry[6] = static_cast<char>(item.name.size());
    entry[7] = static_cast<char>(item.type);
    std::memcpy(entry + kHeader, item.name.data(), item.name.size());
  }
  [[nodiscard]] Block& block() { return block_; }

 private:
  Block block_ = Block(kDiskBlock);
  std::size_t used_ = 0;
  std::size_t last_ = 0;
};

std::vector<Block> linear_blocks(ext2_filsys fs, const std::vector<Item>& items) {
  std::vector<Block> blocks;
  BlockFiller filler;
  for (const Item& item : items) {
    if (filler.add(item)) continue;
    blocks.push_back(filler.take(fs));
    filler.add(item);
  }
  blocks.push_back(filler.take(fs));
  return blocks;
}

Status hash_items(ext2_filsys fs, std::vector<Item>& items) {
  for (Item& item : items) {
    std::uint32_t minor = 0;
    const errcode_t code =
        ext2fs_dirhash2(fs->super->s_def_hash_version, item.name.data(), static_cast<int>(item.name.size()),
                        nullptr, 0, fs->super->s_hash_seed, &item.hash, &minor);
    if (code != 0) return fail_ext2("Hashing a name", code);
  }
  // Names break ties, so that the same names always lie in the same order.
  std::ranges::sort(items, {}, [](const Item& item) { return std::pair(item.hash, item.name); });
  return {};
}

/// Block 0 of an indexed directory: "." and ".." as old kernels want to see them, then the first hash of
/// every block.
Block index_root(const Item& self, const Item& parent, int hash_version,
                 const std::vector<std::uint32_t>& first_hashes) {
  BlockFiller filler;
  filler.put(0, self, 12);
  filler.put(12, parent, kDiskBlock - 12);
  Block& block = filler.block();
  ext2_dx_root_info info{};
  info.hash_version = static_cast<std::uint8_t>(hash_version);
  info.info_length = sizeof info;
  std::memcpy(block.data() + 24, &info, sizeof info);
  for (std::size_t i = 0; i < first_hashes.size(); ++i) {
    const ext2_dx_entry entry{first_hashes[i], static_cast<std::uint32_t>(i + 1)};
    std::memcpy(block.data() + kIndexStart + i * sizeof entry, &entry, sizeof entry);
  }
  // The first entry has no hash: its place tells how many there are.
  const ext2_dx_countlimit count{static_cast<std::uint16_t>(kIndexLimit),
                                 static_cast<std::uint16_t>(first_hashes.size())};
  std::memcpy(block.data() + kIndexStart, &count, sizeof count);
  return std::move(block);
}

/// Empty when one level of index is not enough; such a directory stays without.
Result<std::vector<Block>> indexed_blocks(ext2_filsys fs, std::vector<Item> items) {
  const Item self = items[0];
  const Item parent = items[1];
  items.erase(items.begin(), items.begin() + 2);
  DRUPE_TRY(hash_items(fs, items));
  std::vector<Block> blocks(1);
  std::vector<std::uint32_t> first_hashes;
  BlockFiller filler;
  std::uint32_t last_hash = 0;
  for (const Item& item : items) {
    if (filler.empty() || !filler.add(item)) {
      if (!filler.empty()) blocks.push_back(filler.take(fs));
      // Names of one hash in two blocks: the lowest bit says that the search goes on from the block before.
      first_hashes.push_back(item.hash | (!first_hashes.empty() && item.hash == last_hash ? 1U : 0U));
      filler.add(item);
    }
    last_hash = item.hash;
  }
  blocks.push_back(filler.take(fs));
  if (first_hashes.size() > kIndexLimit) return std::vector<Block>();
  blocks[0] = index_root(self, parent, fs->super->s_def_hash_version, first_hashes);
  return blocks;
}

}  // namespace

Result<bool> write_ext4_directory(ext2_filsys fs, DiskSpace& space, Inode& dir, std::uint32_t parent) {
  std::vector<Item> items{{.name = ".", .number = dir.number, .type = EXT2_FT_DIR},
                          {.name = "..", .number = parent, .type = EXT2_FT_DIR}};
  for (const auto& [name, entry] : dir.children)
    items.push_back({.name = name, .number = entry.inode->number, .type = ext4_file_type(entry.inode->type)});
  std::vector<Block> blocks = linear_blocks(fs, items);
  bool indexed = false;
  if (blocks.size() > 1) {
    DRUPE_ASSIGN(auto better, indexed_blocks(fs, std::move(items)));
    indexed = !better.empty();
    if (indexed) blocks = std::move(better);
  }
  DRUPE_TRY(space.allocate(0, blocks.size(), dir.blocks));
  dir.size = blocks.size() * kDiskBlock;
  std::size_t next = 0;
  for (const BlockRange& range : dir.blocks) {
    for (std::uint64_t i = 0; i < range.count; ++i, ++next) {
      const errcode_t code =
          ext2fs_write_dir_block4(fs, range.physical + i, blocks[next].data(), 0, dir.number);
      if (code != 0) return fail_ext2("Writing a directory", code);
    }
  }
  return indexed;
}

}  // namespace drupe
