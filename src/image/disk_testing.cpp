#include "image/disk_testing.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/files.h"
#include "base/spawn.h"
#include "image/digest.h"
#include "image/ext4_internal.h"
#include "image/source.h"

namespace drupe::testing {
namespace {

/// The file system, opened for one question.
class Reader {
 public:
  explicit Reader(int fd) {
    const int copy = ::dup(fd);
    if (ext2fs_open(std::to_string(copy).c_str(), EXT2_FLAG_64BITS, 0, 0, unixfd_io_manager, &fs_) != 0)
      fs_ = nullptr;
  }
  ~Reader() {
    if (fs_ != nullptr) ext2fs_free(fs_);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  /// 0 when there is none.
  [[nodiscard]] ext2_ino_t find(const std::string& path) const {
    ext2_ino_t ino = 0;
    if (fs_ == nullptr || ext2fs_namei(fs_, EXT2_ROOT_INO, EXT2_ROOT_INO, path.c_str(), &ino) != 0) return 0;
    return ino;
  }
  [[nodiscard]] ext2_inode_large inode(ext2_ino_t ino) const {
    ext2_inode_large inode{};
    ext2fs_read_inode_full(fs_, ino, EXT2_INODE(&inode), sizeof inode);
    return inode;
  }
  [[nodiscard]] ext2_filsys fs() const { return fs_; }

 private:
  ext2_filsys fs_ = nullptr;
};

}  // namespace

Tar& Tar::add(TarEntry entry, std::string_view data) {
  if (entry.type == 'f' && !entry.sparse) entry.size = data.size();
  bytes_ += encode_tar_entry(entry);
  bytes_ += data;
  bytes_.append(tar_padding(data.size()), '\0');
  return *this;
}

Disk::Disk() : fd_(::memfd_create("disk", MFD_CLOEXEC)) {}

DiskOptions Disk::small() {
  DiskOptions options;
  options.virtual_bytes = std::uint64_t{128} << 20U;
  options.uuid = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  return options;
}

Result<DiskSummary> Disk::write(const std::vector<std::string>& layers, DiskOptions options) {
  std::vector<LayerInput> inputs;
  for (const std::string& layer : layers)
    inputs.push_back({.label = "layer " + std::to_string(inputs.size() + 1),
                      .expected_size = layer.size(),
                      .open = [&layer]() -> Result<std::unique_ptr<ByteSource>> {
                        return std::make_unique<MemorySource>(layer);
                      }});
  return write_disk(fd_.get(), inputs, options);
}

std::string Disk::check() const {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return "no pipe";
  UniqueFd read_end(pipe[0]);
  UniqueFd write_end(pipe[1]);
  SpawnRequest request;
  request.program = "/usr/sbin/e2fsck";
  request.argv = {"e2fsck", "-fn", "/proc/self/fd/3"};
  request.env = {"PATH=/usr/sbin:/usr/bin", "LC_ALL=C"};
  request.fds = {{write_end.get(), 1}, {write_end.get(), 2}, {fd_.get(), 3}};
  const auto child = spawn(request);
  if (!child) return to_string(child.error());
  write_end.reset();
  const auto said = read_all(read_end.get(), 1 << 20);
  const auto status = wait_for(*child);
  if (status && *status == 0) return {};
  return "e2fsck: " + (said ? *said : std::string());
}

bool Disk::exists(const std::string& path) const {
  return Reader(fd_.get()).find(path) != 0;
}

Stat Disk::stat(const std::string& path) const {
  const Reader reader(fd_.get());
  const ext2_ino_t ino = reader.find(path);
  if (ino == 0) return {};
  const ext2_inode_large inode = reader.inode(ino);
  const std::int64_t seconds =
      static_cast<std::int32_t>(inode.i_mtime) + (static_cast<std::int64_t>(inode.i_mtime_extra & 3U) << 32);
  return {.mode = inode.i_mode,
          .uid = inode_uid(inode),
          .gid = inode_gid(inode),
          .links = inode.i_links_count,
          .size = inode.i_size | static_cast<std::uint64_t>(inode.i_size_high) << 32U,
          .blocks = inode.i_blocks,
          .mtime_ns = seconds * 1'000'000'000 + (inode.i_mtime_extra >> 2U),
          .flags = inode.i_flags,
          .device = inode.i_block[0] != 0 ? inode.i_block[0] : inode.i_block[1]};
}

std::string Disk::read(const std::string& path) const {
  const Reader reader(fd_.get());
  const ext2_ino_t ino = reader.find(path);
  if (ino == 0) return "(missing)";
  ext2_inode_large inode = reader.inode(ino);
  if (ext2fs_is_fast_symlink(EXT2_INODE(&inode)) != 0)
    return {reinterpret_cast<const char*>(inode.i_block), inode.i_size};
  ext2_file_t file = nullptr;
  if (ext2fs_file_open(reader.fs(), ino, 0, &file) != 0) return "(unreadable)";
  std::string content(inode.i_size, '\0');
  unsigned int got = 0;
  const errcode_t code =
      ext2fs_file_read(file, content.data(), static_cast<unsigned int>(content.size()), &got);
  ext2fs_file_close(file);
  if (code != 0 || got != content.size()) return "(unreadable)";
  return content;
}

std::string Disk::xattr(const std::string& path, const std::string& name) const {
  const Reader reader(fd_.get());
  ext2_xattr_handle* handle = nullptr;
  const ext2_ino_t ino = reader.find(path);
  if (ino == 0 || ext2fs_xattrs_open(reader.fs(), ino, &handle) != 0) return "(unreadable)";
  void* value = nullptr;
  std::size_t size = 0;
  std::string text = "(missing)";
  if (ext2fs_xattrs_read(handle) == 0 && ext2fs_xattr_get(handle, name.c_str(), &value, &size) == 0) {
    text.assign(static_cast<const char*>(value), size);
    ext2fs_free_mem(&value);
  }
  ext2fs_xattrs_close(&handle);
  return text;
}

std::vector<std::string> Disk::list(const std::string& path) const {
  const Reader reader(fd_.get());
  std::vector<std::string> names;
  const auto take = [](ext2_dir_entry* entry, int, int, char*, void* into) {
    const std::string name(entry->name, static_cast<std::size_t>(ext2fs_dirent_name_len(entry)));
    if (name != "." && name != "..") static_cast<std::vector<std::string>*>(into)->push_back(name);
    return 0;
  };
  const ext2_ino_t dir = reader.find(path);
  if (dir == 0) return {"(missing)"};
  ext2fs_dir_iterate(reader.fs(), dir, 0, nullptr, take, &names);
  std::ranges::sort(names);
  return names;
}

std::string Disk::digest() const {
  Sha256 hash;
  std::vector<std::uint8_t> buffer(1 << 20);
  FileRangeSource source(fd_.get(), 0, static_cast<std::uint64_t>(::lseek(fd_.get(), 0, SEEK_END)));
  while (true) {
    const auto got = source.read(buffer);
    if (!got || *got == 0) break;
    hash.update(std::span(buffer).first(*got));
  }
  return hash.hex();
}

}  // namespace drupe::testing
