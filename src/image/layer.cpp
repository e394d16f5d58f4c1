#include "image/layer.h"

#include <algorithm>
#include <array>

namespace drupe {
namespace {

constexpr std::string_view kWhiteout = ".wh.";
constexpr std::string_view kOpaque = ".wh..wh..opq";
constexpr std::string_view kAufs = ".wh..wh.";  // Bookkeeping of an old union file system; never content.
constexpr std::uint64_t kMaxFile =
    (std::uint64_t{1} << 44) - kDiskBlock;  // ext4 with 4 KiB blocks: 2^32 - 1 of them.
constexpr std::uint32_t kMaxNames = 65000;  // ext4's EXT4_LINK_MAX.
constexpr std::size_t kMaxTarget = 4095;    // A symbolic link's target and its NUL are one block.
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kOldest = -(std::int64_t{1} << 31) * kSecond;  // 1901, ext4's first time.

std::unexpected<Error> refused(std::string what) {
  return fail(ErrorCode::kIntegrity, std::move(what));
}

/// A hostile name for an error message: short, and nothing that a terminal obeys.
std::string printable(std::string_view name) {
  constexpr std::size_t kShown = 120;
  std::string text;
  for (const char c : name.substr(0, kShown)) text += c >= ' ' && c <= '~' ? c : '?';
  return name.size() > kShown ? text + "..." : text;
}

/// True for attributes that mean something in a guest. What union file systems of the image's maker left is
/// dropped.
bool is_kept(std::string_view name) {
  if (name.starts_with("trusted.overlay.") || name.starts_with("user.overlay.")) return false;
  if (name == "system.posix_acl_access" || name == "system.posix_acl_default") return true;
  constexpr std::array<std::string_view, 3> kKept{"user.", "security.", "trusted."};
  return std::ranges::any_of(kKept, [name](std::string_view prefix) {
    return name.starts_with(prefix) && name.size() > prefix.size();
  });
}

}  // namespace

Status LayerApplier::entry(const TarEntry& entry) {
  file_ = nullptr;
  auto status = apply(entry);
  if (status) return {};
  return std::unexpected(
      std::move(status).error().in("The entry \"" + printable(entry.name) + "\" is refused"));
}

Status LayerApplier::check(const TarEntry& entry) {
  if (++totals_.entries > limits_.entries)
    return fail(ErrorCode::kLimit, "the image has more than " + std::to_string(limits_.entries) + " entries");
  if (entry.name.size() > limits_.path)
    return fail(ErrorCode::kLimit, "its name has " + std::to_string(entry.name.size()) +
                                       " bytes, more than " + std::to_string(limits_.path));
  if (entry.link.size() > std::min(limits_.path, kMaxTarget))
    return fail(ErrorCode::kLimit, "its link's target has " + std::to_string(entry.link.size()) + " bytes");
  return {};
}

Status LayerApplier::apply(const TarEntry& entry) {
  DRUPE_TRY(check(entry));
  DRUPE_ASSIGN(const ImagePath path, split_image_path(entry.name));
  if (path.size() > limits_.depth) return fail(ErrorCode::kLimit, "its name has too many components");
  for (const std::string_view part : path) {
    if (part.size() > limits_.name)
      return fail(ErrorCode::kLimit, "a component of its name has " + std::to_string(part.size()) +
                                         " bytes, more than " + std::to_string(limits_.name));
    if (part.starts_with(kAufs) && part != kOpaque) return {};
  }
  if (path.empty()) {
    if (entry.type != 'd') return refused("the root of an image is a directory");
    return take_metadata(entry, tree_.root());
  }
  if (path.back().starts_with(kWhiteout)) return white_out(path, path.back().substr(kWhiteout.size()));
  if (entry.type == 'h') return add_link(entry, path);
  if (entry.type == 'l' && entry.link.empty()) return refused("a symbolic link without a target");
  DRUPE_ASSIGN(const ImageTree::Place place, tree_.make_place(path, layer_));
  if (entry.type == 'd' && place.dir->depth >= limits_.depth)
    return fail(ErrorCode::kLimit, "directories are nested too deep");
  Inode& inode = tree_.put(place, entry.type, layer_);
  DRUPE_TRY(take_metadata(entry, inode));
  if (entry.type == 'l') {
    inode.target = entry.link;
    inode.size = entry.link.size();
  }
  return entry.type == 'f' ? add_file(entry, inode) : Status();
}

Status LayerApplier::white_out(const ImagePath& path, std::string_view hidden) {
  ImagePath target(path.begin(), path.end() - 1);
  if (path.back() == kOpaque) {
    if (Inode* dir = tree_.find_directory(target); dir != nullptr) tree_.clear_lower(*dir, layer_);
    return {};
  }
  if (hidden.empty() || hidden == "." || hidden == "..") return refused("a whiteout that names nothing");
  target.push_back(hidden);
  tree_.remove_lower(tree_.find_place(target), layer_);
  return {};
}

Status LayerApplier::add_link(const TarEntry& entry, const ImagePath& path) {
  DRUPE_ASSIGN(const ImagePath target, split_image_path(entry.link));
  Inode* inode = tree_.find(target);
  if (inode == nullptr)
    return refused("it is a hard link to \"" + printable(entry.link) + "\", which is not in the image");
  if (inode->type == 'd') return refused("it is a hard link to a directory");
  if (inode->links >= kMaxNames) return fail(ErrorCode::kLimit, "a file has too many names");
  DRUPE_ASSIGN(const ImageTree::Place place, tree_.make_place(path, layer_));
  tree_.link(place, *inode, layer_);
  return {};
}

Status LayerApplier::add_file(const TarEntry& entry, Inode& inode) {
  if (entry.size > kMaxFile) return fail(ErrorCode::kLimit, "the file is larger than 16 TiB");
  const std::uint64_t stored = tar_data_size(entry);
  if (stored > limits_.total_bytes || totals_.bytes > limits_.total_bytes - stored)
    return fail(ErrorCode::kLimit, "the files of the image have more than " +
                                       std::to_string(limits_.total_bytes >> 20U) + " MiB");
  totals_.bytes += stored;
  inode.size = entry.size;
  const auto blocks = [](std::uint64_t bytes) { return (bytes + kDiskBlock - 1) / kDiskBlock; };
  if (!entry.sparse) {
    DRUPE_TRY(space_.allocate(0, blocks(entry.size), inode.blocks));
  } else {
    std::uint64_t next = 0;  // Two pieces may share a block.
    for (const TarExtent& extent : entry.extents) {
      const std::uint64_t from = std::max(next, extent.offset / kDiskBlock);
      const std::uint64_t to = extent.length == 0 ? 0 : blocks(extent.offset + extent.length);
      if (to <= from) continue;
      DRUPE_TRY(space_.allocate(from, to - from, inode.blocks));
      next = to;
    }
  }
  file_ = &inode;
  range_ = 0;
  return {};
}

Status LayerApplier::take_metadata(const TarEntry& entry, Inode& inode) {
  if (entry.device_major >= 1U << 12U || entry.device_minor >= 1U << 20U)
    return refused("it is a device with a number that Linux does not have");
  std::size_t size = 0;
  inode.xattrs.clear();
  for (const auto& [name, value] : entry.xattrs) {
    if (!is_kept(name)) continue;
    size += name.size() + value.size();
    if (name.size() > 255 || size > limits_.xattr_bytes)
      return fail(ErrorCode::kLimit,
                  "its extended attributes have more than " + std::to_string(limits_.xattr_bytes) + " bytes");
    inode.xattrs.emplace(name, value);
  }
  inode.mode = entry.mode & 07777U;
  inode.uid = entry.uid;
  inode.gid = entry.gid;
  inode.mtime_ns = std::max(entry.mtime_ns, kOldest);
  inode.device_major = entry.device_major;
  inode.device_minor = entry.device_minor;
  return {};
}

Status LayerApplier::data(std::uint64_t offset, ByteView bytes) {
  while (!bytes.empty()) {
    const std::uint64_t block = offset / kDiskBlock;
    while (range_ < file_->blocks.size() &&
           block >= file_->blocks[range_].logical + file_->blocks[range_].count)
      ++range_;
    if (range_ == file_->blocks.size() || block < file_->blocks[range_].logical)
      return fail(ErrorCode::kHost, "Data of an image's file has no place");
    const BlockRange& range = file_->blocks[range_];
    const std::uint64_t in_range = offset - range.logical * kDiskBlock;
    const std::uint64_t count = std::min<std::uint64_t>(bytes.size(), range.count * kDiskBlock - in_range);
    DRUPE_TRY(space_.write(range.physical * kDiskBlock + in_range, bytes.first(count)));
    offset += count;
    bytes = bytes.subspan(count);
  }
  return {};
}

}  // namespace drupe
