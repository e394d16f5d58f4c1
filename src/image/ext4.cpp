#include "image/ext4.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>

#include "image/ext4_internal.h"

namespace drupe {
namespace {

constexpr std::uint64_t kBytesPerInode = 16384;
constexpr std::uint32_t kJournalBlocks = 4096;  // 16 MiB
// Descriptor blocks kept for growth: 128 descriptors of 32 bytes and 128 MiB each per block.
constexpr std::uint16_t kGrowthBlocks = 64;
// Not 0, which libext2fs takes for "ask the clock".
constexpr std::uint32_t kNoTime = 1;

constexpr std::uint32_t kCompat = EXT3_FEATURE_COMPAT_HAS_JOURNAL | EXT2_FEATURE_COMPAT_EXT_ATTR |
                                  EXT2_FEATURE_COMPAT_RESIZE_INODE | EXT2_FEATURE_COMPAT_DIR_INDEX;
constexpr std::uint32_t kIncompat =
    EXT2_FEATURE_INCOMPAT_FILETYPE | EXT3_FEATURE_INCOMPAT_EXTENTS | EXT4_FEATURE_INCOMPAT_FLEX_BG;
constexpr std::uint32_t kRoCompat = EXT2_FEATURE_RO_COMPAT_SPARSE_SUPER | EXT2_FEATURE_RO_COMPAT_LARGE_FILE |
                                    EXT4_FEATURE_RO_COMPAT_HUGE_FILE | EXT4_FEATURE_RO_COMPAT_DIR_NLINK |
                                    EXT4_FEATURE_RO_COMPAT_EXTRA_ISIZE | EXT4_FEATURE_RO_COMPAT_METADATA_CSUM;

void set_identity(ext2_filsys fs, const std::array<std::uint8_t, 16>& uuid) {
  ext2_super_block& super = *fs->super;
  std::copy(uuid.begin(), uuid.end(), super.s_uuid);
  std::memcpy(super.s_hash_seed, uuid.data(), sizeof super.s_hash_seed);
  super.s_checksum_type = EXT2_CRC32C_CHKSUM;
  super.s_def_hash_version = EXT2_HASH_HALF_MD4;
  super.s_flags |= EXT2_FLAGS_SIGNED_HASH;
  super.s_mkfs_time = super.s_lastcheck = super.s_wtime = kNoTime;
  super.s_checkinterval = 0;
  super.s_max_mnt_count = -1;
  super.s_default_mount_opts = EXT2_DEFM_XATTR_USER | EXT2_DEFM_ACL;
  super.s_min_extra_isize = super.s_want_extra_isize = sizeof(ext2_inode_large) - EXT2_GOOD_OLD_INODE_SIZE;
  ext2fs_r_blocks_count_set(&super, 0);
  ext2fs_init_csum_seed(fs);
}

/// The tables, the reserved inodes and the journal.
Status set_up(ext2_filsys fs) {
  if (const errcode_t code = ext2fs_allocate_tables(fs); code != 0)
    return fail_ext2("Placing the tables", code);
  // The file is all holes, so the tables are zero; a mounted kernel need not write them.
  for (dgrp_t group = 0; group < fs->group_desc_count; ++group)
    ext2fs_bg_flags_set(fs, group, EXT2_BG_INODE_ZEROED);
  for (ext2_ino_t ino = EXT2_BAD_INO; ino < EXT2_FIRST_INODE(fs->super); ++ino)
    ext2fs_inode_alloc_stats2(fs, ino, +1, ino == EXT2_ROOT_INO ? 1 : 0);
  if (const errcode_t code = ext2fs_create_resize_inode(fs); code != 0)
    return fail_ext2("Making the resize inode", code);
  ext2fs_journal_params journal{};
  journal.num_journal_blocks = kJournalBlocks;
  // LAZYINIT: its blocks are holes and read as zero.
  if (const errcode_t code = ext2fs_add_journal_inode3(fs, &journal, 0, EXT2_MKJOURNAL_LAZYINIT); code != 0)
    return fail_ext2("Making the journal", code);
  return {};
}

}  // namespace

std::unexpected<Error> fail_ext2(std::string_view what, errcode_t code) {
  if (code == EXT2_ET_BLOCK_ALLOC_FAIL || code == EXT2_ET_INODE_ALLOC_FAIL || code == EXT2_ET_DIR_NO_SPACE)
    return fail(ErrorCode::kLimit, "The files of the image do not fit on its disk");
  if (code == ENOSPC || code == EDQUOT || code == EFBIG)
    return fail_sys(std::string(what) + " failed", static_cast<int>(code));
  // error_message() needs the library's table, which it loads itself on first use of most calls.
  initialize_ext2_error_table();
  return fail(ErrorCode::kHost, std::string(what) + " in the disk image failed: " + error_message(code));
}

struct Ext4::State {
  ext2_filsys fs = nullptr;
  std::uint32_t next_inode = EXT2_GOOD_OLD_FIRST_INO;
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (fs != nullptr) ext2fs_free(fs);
  }

  Status number(Inode& inode);
  Status number_below(Inode& dir);
  Status write_below(DiskSpace& space, Inode& dir, std::uint32_t parent);
  Status write_link(DiskSpace& space, Inode& link) const;
};

Ext4::Ext4(std::unique_ptr<State> state) : state_(std::move(state)) {}
Ext4::~Ext4() = default;

Result<std::unique_ptr<Ext4>> Ext4::create(int fd, const Ext4Options& options) {
  ext2_super_block param{};
  ext2fs_blocks_count_set(&param, options.bytes / kDiskBlock);
  param.s_log_block_size = param.s_log_cluster_size = 2;
  param.s_rev_level = EXT2_DYNAMIC_REV;
  param.s_inode_size = 256;
  param.s_inodes_count = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(options.bytes / kBytesPerInode, std::uint64_t{1} << 31U));
  param.s_feature_compat = kCompat;
  param.s_feature_incompat = kIncompat;
  param.s_feature_ro_compat = kRoCompat;
  param.s_log_groups_per_flex = 4;
  param.s_reserved_gdt_blocks = kGrowthBlocks;

  // The library closes the descriptor that it is given as a number.
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return fail_sys("Duplicating the disk image's descriptor failed", errno);
  auto state = std::make_unique<State>();
  const errcode_t code = ext2fs_initialize(std::to_string(copy).c_str(), EXT2_FLAG_64BITS, &param,
                                           unixfd_io_manager, &state->fs);
  if (code != 0) return fail_ext2("Making the file system", code);
  state->fs->now = kNoTime;
  set_identity(state->fs, options.uuid);
  DRUPE_TRY(set_up(state->fs));
  return std::unique_ptr<Ext4>(new Ext4(std::move(state)));
}

BlockRange Ext4::find_free(std::uint64_t from, std::uint64_t most) {
  ext2_filsys fs = state_->fs;
  const std::uint64_t last = ext2fs_blocks_count(fs->super) - 1;
  if (from > last) return {};
  from = std::max<std::uint64_t>(from, fs->super->s_first_data_block);
  blk64_t first = 0;
  if (ext2fs_find_first_zero_block_bitmap2(fs->block_map, from, last, &first) != 0) return {};
  const std::uint64_t end = std::min<std::uint64_t>(last, first + most - 1);
  blk64_t used = 0;
  if (ext2fs_find_first_set_block_bitmap2(fs->block_map, first, end, &used) != 0) used = end + 1;
  return {.logical = 0, .physical = first, .count = used - first};
}

void Ext4::mark(std::uint64_t physical, std::uint64_t count, bool used) {
  // The library counts in 32 bits.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 30U;
  for (; count > 0; physical += kMost, count -= std::min(count, kMost))
    ext2fs_block_alloc_stats_range(state_->fs, physical, static_cast<blk_t>(std::min(count, kMost)),
                                   used ? 1 : -1);
}

Status Ext4::State::number(Inode& inode) {
  if (inode.number != 0) return {};
  if (next_inode > fs->super->s_inodes_count)
    return fail(ErrorCode::kLimit, "The image has more files than its disk can hold: " +
                                       std::to_string(fs->super->s_inodes_count));
  inode.number = next_inode++;
  ext2fs_inode_alloc_stats2(fs, inode.number, +1, inode.type == 'd' ? 1 : 0);
  return {};
}

/// Numbers in the order of a walk, so that a directory and its files lie together.
Status Ext4::State::number_below(Inode& dir) {
  for (const auto& [name, entry] : dir.children) DRUPE_TRY(number(*entry.inode));
  for (const auto& [name, entry] : dir.children)
    if (entry.inode->type == 'd') DRUPE_TRY(number_below(*entry.inode));
  return {};
}

Status Ext4::State::write_link(DiskSpace& space, Inode& link) const {
  if (link.target.size() < sizeof(ext2_inode::i_block)) return {};  // It is kept in the inode.
  DRUPE_TRY(space.allocate(0, 1, link.blocks));
  return space.write(link.blocks.front().physical * kDiskBlock,
                     {reinterpret_cast<const std::uint8_t*>(link.target.data()), link.target.size()});
}

Status Ext4::State::write_below(DiskSpace& space, Inode& dir, std::uint32_t parent) {
  DRUPE_ASSIGN(const bool indexed, write_ext4_directory(fs, space, dir, parent));
  DRUPE_TRY(write_ext4_inode(fs, dir, indexed));
  for (const auto& [name, entry] : dir.children) {
    Inode& inode = *entry.inode;
    if (inode.type == 'd') {
      DRUPE_TRY(write_below(space, inode, dir.number));
      continue;
    }
    if (std::exchange(inode.written, true)) continue;
    if (inode.type == 'l') DRUPE_TRY(write_link(space, inode));
    DRUPE_TRY(write_ext4_inode(fs, inode, false));
  }
  return {};
}

Status Ext4::finish(ImageTree& tree, DiskSpace& space) {
  ext2_filsys fs = state_->fs;
  tree.root().number = EXT2_ROOT_INO;
  DRUPE_TRY(state_->number_below(tree.root()));
  DRUPE_TRY(state_->write_below(space, tree.root(), EXT2_ROOT_INO));
  DRUPE_TRY(space.flush());
  if (const errcode_t code = ext2fs_set_gdt_csum(fs); code != 0)
    return fail_ext2("Summing the descriptors", code);
  ext2fs_mark_super_dirty(fs);
  const errcode_t code = ext2fs_close2(fs, 0);
  if (code != 0) return fail_ext2("Writing the file system", code);
  state_->fs = nullptr;
  return {};
}

}  // namespace drupe
