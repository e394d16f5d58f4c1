// A tree as a tar stream.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "agent/tasks.h"
#include "agent/tree.h"
#include "base/tar_encode.h"
#include "base/unique_fd.h"

namespace drupe::agent {
namespace {

constexpr std::size_t kChunk = 64 * 1024;
// Hard links that are remembered; a file with more partners beyond that is sent again as a file of its own.
constexpr std::size_t kMaxLinks = 1'000'000;
// A file in more pieces is sent whole: its map would cost more than its holes.
constexpr std::size_t kMaxExtents = 65536;

/// The ranges with data; empty optional-like false when the file is not worth a map.
bool find_extents(int file, std::uint64_t size, std::vector<TarExtent>& extents) {
  std::uint64_t at = 0;
  while (at < size) {
    const off_t data = ::lseek(file, static_cast<off_t>(at), SEEK_DATA);
    if (data < 0) {
      if (errno != ENXIO) return false;
      break;
    }
    const off_t hole = ::lseek(file, data, SEEK_HOLE);
    if (hole < 0 || extents.size() >= kMaxExtents) return false;
    const auto begin = std::min(static_cast<std::uint64_t>(data), size);
    const auto end = std::min(static_cast<std::uint64_t>(hole), size);
    if (end > begin) extents.push_back({begin, end - begin});
    at = std::max(end, begin);
    if (static_cast<std::uint64_t>(hole) >= size) break;
  }
  return !(extents.size() == 1 && extents[0].length == size);
}

class Packer {
 public:
  Packer() : buffer_(new char[kChunk]) {}

  Status entry(int dir, const std::string& name, const std::string& path, const struct stat& info) {
    TarEntry tar;
    tar.name = path;
    tar.type = to_stat({}, info).type;
    if (tar.type == 's') return {};  // a socket is an endpoint, not data
    tar.mode = info.st_mode & 07777;
    tar.uid = info.st_uid;
    tar.gid = info.st_gid;
    tar.mtime_ns = to_stat({}, info).mtime_ns;
    tar.device_major = ::major(info.st_rdev);
    tar.device_minor = ::minor(info.st_rdev);
    if (tar.type == 'l') tar.link = read_link(dir, name);
    if (info.st_nlink > 1 && tar.type != 'd') {
      const auto key = std::make_pair(info.st_dev, info.st_ino);
      const auto [first, fresh] =
          links_.size() < kMaxLinks ? links_.try_emplace(key, path) : std::make_pair(links_.find(key), false);
      if (!fresh && first != links_.end()) {
        tar.type = 'h';
        tar.link = first->second;
      }
    }
    if (tar.type == 'f') return file(dir, name, tar);
    out_.write(encode_tar_entry(tar));
    return {};
  }

  void finish() {
    out_.write(tar_end());
    out_.flush();
  }

 private:
  Status file(int dir, const std::string& name, TarEntry& tar) {
    const UniqueFd fd(::openat(dir, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    struct stat info{};
    if (!fd.valid()) return errno == ENOENT ? Status() : file_error("Opening", tar.name, errno);
    if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
    tar.size = static_cast<std::uint64_t>(info.st_size);
    const bool holes = static_cast<std::uint64_t>(info.st_blocks) * 512 < tar.size;
    tar.sparse = holes && find_extents(fd.get(), tar.size, tar.extents);
    out_.write(encode_tar_entry(tar));
    if (tar.sparse) {
      for (const auto& extent : tar.extents) DRUPE_TRY(range(fd.get(), tar.name, extent));
    } else {
      DRUPE_TRY(range(fd.get(), tar.name, {0, tar.size}));
    }
    out_.write(std::string(tar_padding(tar_data_size(tar)), '\0'));
    return {};
  }

  /// Exactly the bytes that the header promised: a file that shrinks meanwhile is filled up with zeros.
  Status range(int fd, const std::string& path, TarExtent extent) {
    while (extent.length > 0) {
      const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(extent.length, kChunk));
      ssize_t got = ::pread(fd, buffer_.get(), want, static_cast<off_t>(extent.offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return file_error("Reading", path, errno);
      if (got == 0) {
        std::fill_n(buffer_.get(), want, '\0');
        got = static_cast<ssize_t>(want);
      }
      out_.write({buffer_.get(), static_cast<std::size_t>(got)});
      extent.offset += static_cast<std::uint64_t>(got);
      extent.length -= static_cast<std::uint64_t>(got);
    }
    return {};
  }

  std::unique_ptr<char[]> buffer_;
  std::map<std::pair<dev_t, ino_t>, std::string> links_;
  Output out_;
};

Status pack(Packer& packer, int dir, const std::string& name, const std::string& path, int depth) {
  struct stat info{};
  if (::fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT && depth > 0 ? Status() : file_error("Looking at", path, errno);
  DRUPE_TRY(packer.entry(dir, name, path, info));
  if (!S_ISDIR(info.st_mode)) return {};
  if (depth >= kMaxTreeDepth) return file_error("Entering", path, ELOOP);
  const UniqueFd below(::openat(dir, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!below.valid()) return errno == ENOENT ? Status() : file_error("Opening", path, errno);
  return each_name(below.get(), path, [&](const std::string& child) {
    return pack(packer, below.get(), child, path + "/" + child, depth + 1);
  });
}

}  // namespace

Result<std::string> tar_out_task(const FileOptions& options) {
  std::string path = options.path;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const auto slash = path.rfind('/');
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  // "/" and "dir/." have no name of their own; their contents are below ".".
  if (name.empty()) name = ".";
  std::string top = path;
  if (!options.no_follow) {
    // The thing named is what is wanted, also through a link; links below stay links.
    const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), std::free);
    if (!real) return file_error("Opening", path, errno);
    top = real.get();
  }
  Packer packer;
  DRUPE_TRY(pack(packer, AT_FDCWD, top, name, 0));
  packer.finish();
  return std::string();
}

}  // namespace drupe::agent
