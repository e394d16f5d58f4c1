#include <algorithm>
#include <cstring>

#include <sys/stat.h>

#include "image/ext4_internal.h"

namespace drupe {
namespace {

constexpr std::uint64_t kMaxExtent = EXT_INIT_MAX_LEN;
constexpr std::size_t kInlineExtents = 4;
constexpr std::uint32_t kSectorsPerBlock = kDiskBlock / 512;

std::uint16_t mode_bits(const Inode& inode) {
  const auto type = [&]() -> std::uint32_t {
    switch (inode.type) {
      case 'd':
        return LINUX_S_IFDIR;
      case 'l':
        return LINUX_S_IFLNK;
      case 'c':
        return LINUX_S_IFCHR;
      case 'b':
        return LINUX_S_IFBLK;
      case 'p':
        return LINUX_S_IFIFO;
      default:
        return LINUX_S_IFREG;
    }
  }();
  return static_cast<std::uint16_t>(type | inode.mode);
}

struct DiskTime {
  std::uint32_t seconds = 0, extra = 0;
};

/// Low 32 bits of the seconds; the two bits above them and the nanoseconds.
DiskTime disk_time(std::int64_t nanoseconds) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  std::int64_t seconds = nanoseconds / kSecond;
  std::int64_t rest = nanoseconds % kSecond;
  if (rest < 0) {
    --seconds;
    rest += kSecond;
  }
  const auto low = static_cast<std::int32_t>(seconds & 0xFFFFFFFF);
  const auto epoch = static_cast<std::uint32_t>(((seconds - low) >> 32) & 3);
  return {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(rest) << 2U | epoch};
}

/// Pieces no longer than one extent can be.
std::vector<ext2fs_extent> extents_of(const Inode& inode) {
  std::vector<ext2fs_extent> extents;
  for (const BlockRange& range : inode.blocks) {
    for (std::uint64_t done = 0; done < range.count; done += kMaxExtent) {
      ext2fs_extent extent{};
      extent.e_lblk = range.logical + done;
      extent.e_pblk = range.physical + done;
      extent.e_len = static_cast<std::uint32_t>(std::min(kMaxExtent, range.count - done));
      extents.push_back(extent);
    }
  }
  return extents;
}

void put_inline_extents(const std::vector<ext2fs_extent>& extents, ext2_inode_large& disk) {
  ext3_extent_header header{};
  header.eh_magic = EXT3_EXT_MAGIC;
  header.eh_max = kInlineExtents;
  header.eh_entries = static_cast<std::uint16_t>(extents.size());
  auto* at = reinterpret_cast<std::uint8_t*>(disk.i_block);
  std::memcpy(at, &header, sizeof header);
  for (const ext2fs_extent& extent : extents) {
    at += sizeof(ext3_extent);
    ext3_extent entry{};
    entry.ee_block = static_cast<std::uint32_t>(extent.e_lblk);
    entry.ee_len = static_cast<std::uint16_t>(extent.e_len);
    entry.ee_start = static_cast<std::uint32_t>(extent.e_pblk);
    entry.ee_start_hi = static_cast<std::uint16_t>(extent.e_pblk >> 32U);
    std::memcpy(at, &entry, sizeof entry);
  }
}

/// Many extents need blocks of their own; the library builds the tree and counts them into `disk`.
Status put_extent_tree(ext2_filsys fs, ext2_ino_t number, const std::vector<ext2fs_extent>& extents,
                       ext2_inode_large& disk) {
  put_inline_extents({}, disk);
  ext2_extent_handle_t handle = nullptr;
  if (const errcode_t code = ext2fs_extent_open2(fs, number, EXT2_INODE(&disk), &handle); code != 0)
    return fail_ext2("Opening a file's extents", code);
  errcode_t code = 0;
  for (ext2fs_extent extent : extents) {
    code = ext2fs_extent_insert(handle, EXT2_EXTENT_INSERT_AFTER, &extent);
    if (code != 0) break;
  }
  if (code == 0) code = ext2fs_extent_fix_parents(handle);
  ext2fs_extent_free(handle);
  if (code != 0) return fail_ext2("Writing a file's extents", code);
  return {};
}

void put_device(const Inode& inode, ext2_inode_large& disk) {
  const std::uint32_t major = inode.device_major;
  const std::uint32_t minor = inode.device_minor;
  // Linux: the old form where it fits, else the new one in the second word.
  if (major < 256 && minor < 256) {
    disk.i_block[0] = major << 8U | minor;
  } else {
    disk.i_block[1] = (minor & 0xFFU) | major << 8U | (minor & ~0xFFU) << 12U;
  }
}

Status write_xattrs(ext2_filsys fs, const Inode& inode) {
  if (inode.xattrs.empty()) return {};
  ext2_xattr_handle* handle = nullptr;
  errcode_t code = ext2fs_xattrs_open(fs, inode.number, &handle);
  if (code == 0) code = ext2fs_xattrs_read(handle);
  for (const auto& [name, value] : inode.xattrs) {
    if (code != 0) break;
    code = ext2fs_xattr_set(handle, name.c_str(), value.data(), value.size());
  }
  if (handle != nullptr) ext2fs_xattrs_close(&handle);
  if (code == EXT2_ET_EA_NO_SPACE || code == EINVAL)
    return fail(ErrorCode::kIntegrity, "A file's extended attributes cannot be stored: " +
                                           std::string(code == EINVAL ? "malformed" : "too large"));
  if (code != 0) return fail_ext2("Writing extended attributes", code);
  return {};
}

std::uint32_t directory_links(const Inode& dir) {
  std::uint32_t links = 2;
  for (const auto& [name, entry] : dir.children) links += entry.inode->type == 'd' ? 1 : 0;
  return links > 65000 ? 1 : links;  // dir_nlink: 1 says "many".
}

}  // namespace

Status write_ext4_inode(ext2_filsys fs, const Inode& inode, bool indexed) {
  ext2_inode_large disk{};
  disk.i_mode = mode_bits(inode);
  disk.i_uid = static_cast<std::uint16_t>(inode.uid);
  disk.i_gid = static_cast<std::uint16_t>(inode.gid);
  ext2fs_set_i_uid_high(disk, static_cast<std::uint16_t>(inode.uid >> 16U));
  ext2fs_set_i_gid_high(disk, static_cast<std::uint16_t>(inode.gid >> 16U));
  disk.i_links_count = static_cast<std::uint16_t>(inode.type == 'd' ? directory_links(inode) : inode.links);
  disk.i_size = static_cast<std::uint32_t>(inode.size);
  disk.i_size_high = static_cast<std::uint32_t>(inode.size >> 32U);
  const DiskTime time = disk_time(inode.mtime_ns);
  disk.i_atime = disk.i_ctime = disk.i_mtime = disk.i_crtime = time.seconds;
  disk.i_atime_extra = disk.i_ctime_extra = disk.i_mtime_extra = disk.i_crtime_extra = time.extra;
  disk.i_extra_isize = sizeof(ext2_inode_large) - EXT2_GOOD_OLD_INODE_SIZE;

  std::uint64_t sectors = 0;
  for (const BlockRange& range : inode.blocks) sectors += range.count * kSectorsPerBlock;
  disk.i_blocks = static_cast<std::uint32_t>(sectors);
  disk.osd2.linux2.l_i_blocks_hi = static_cast<std::uint16_t>(sectors >> 32U);

  if (inode.type == 'c' || inode.type == 'b') {
    put_device(inode, disk);
  } else if (inode.type == 'l' && inode.blocks.empty()) {
    std::memcpy(disk.i_block, inode.target.data(), inode.target.size());
  } else if (inode.type != 'p') {
    disk.i_flags = EXT4_EXTENTS_FL | (indexed ? EXT2_INDEX_FL : 0U);
    const auto extents = extents_of(inode);
    if (extents.size() <= kInlineExtents) {
      put_inline_extents(extents, disk);
    } else {
      DRUPE_TRY(put_extent_tree(fs, inode.number, extents, disk));
    }
  }
  const errcode_t code = ext2fs_write_inode_full(fs, inode.number, EXT2_INODE(&disk), sizeof disk);
  if (code != 0) return fail_ext2("Writing an inode", code);
  return write_xattrs(fs, inode);
}

int ext4_file_type(char type) {
  switch (type) {
    case 'd':
      return EXT2_FT_DIR;
    case 'l':
      return EXT2_FT_SYMLINK;
    case 'c':
      return EXT2_FT_CHRDEV;
    case 'b':
      return EXT2_FT_BLKDEV;
    case 'p':
      return EXT2_FT_FIFO;
    default:
      return EXT2_FT_REG_FILE;
  }
}

}  // namespace drupe
