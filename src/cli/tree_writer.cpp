#include "cli/tree_writer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/files.h"
#include "base/tar_encode.h"

namespace drupe::cli {
namespace {

constexpr std::size_t kChunk = 256 * 1024;
constexpr int kMaxDepth = 512;  // Each level holds a descriptor.

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

class TreeWriter {
 public:
  TreeWriter(const TreeOptions& options, const WriteBytes& write) : options_(options), write_(write) {}

  /// `leaf` in `parent` as the entry `name`.
  Status entry(int parent, const std::string& leaf, const std::string& name, bool follow, int depth);
  Status children(UniqueFd folder, const std::string& name, int depth);

 private:
  Status file(int parent, const std::string& leaf, TarEntry entry, const struct stat& status, bool follow);
  Status data(int fd, const TarEntry& entry);
  Status range(int fd, std::uint64_t offset, std::uint64_t length);

  const TreeOptions& options_;
  const WriteBytes& write_;
  std::map<std::pair<dev_t, ino_t>, std::string> seen_;  ///< Files with several names.
  std::vector<char> buffer_ = std::vector<char>(kChunk);
};

/// The data of a file in ranges; one range, and not sparse, when it has no holes worth it.
void find_extents(int fd, TarEntry& entry, std::uint64_t allocated) {
  constexpr std::uint64_t kWorthIt = 64 * 1024;
  if (allocated + kWorthIt > entry.size) return;
  std::uint64_t at = 0;
  while (at < entry.size) {
    const off_t data = ::lseek(fd, static_cast<off_t>(at), SEEK_DATA);
    if (data < 0) break;
    const off_t hole = ::lseek(fd, data, SEEK_HOLE);
    if (hole <= data) break;
    const std::uint64_t end = std::min(static_cast<std::uint64_t>(hole), entry.size);
    entry.extents.push_back({static_cast<std::uint64_t>(data), end - static_cast<std::uint64_t>(data)});
    at = end;
  }
  entry.sparse = true;
  // Readers learn from it where a file ends that ends with a hole.
  if (at < entry.size) entry.extents.push_back({entry.size, 0});
}

Status TreeWriter::range(int fd, std::uint64_t offset, std::uint64_t length) {
  bool short_file = false;
  while (length > 0) {
    const std::size_t wanted = std::min<std::uint64_t>(length, buffer_.size());
    std::size_t got = 0;
    while (got < wanted && !short_file) {
      const auto count = ::pread(fd, buffer_.data() + got, wanted - got, static_cast<off_t>(offset + got));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail_sys("Reading the file failed", errno);
      short_file = count == 0;
      got += static_cast<std::size_t>(count);
    }
    std::fill(buffer_.begin() + static_cast<std::ptrdiff_t>(got),
              buffer_.begin() + static_cast<std::ptrdiff_t>(wanted), 0);
    DRUPE_TRY(write_({buffer_.data(), wanted}));
    offset += wanted;
    length -= wanted;
  }
  return {};
}

Status TreeWriter::data(int fd, const TarEntry& entry) {
  if (entry.sparse) {
    for (const TarExtent& extent : entry.extents) DRUPE_TRY(range(fd, extent.offset, extent.length));
  } else {
    DRUPE_TRY(range(fd, 0, entry.size));
  }
  return write_(std::string(tar_padding(tar_data_size(entry)), '\0'));
}

Status TreeWriter::file(int parent, const std::string& leaf, TarEntry entry, const struct stat& status,
                        bool follow) {
  DRUPE_ASSIGN(const UniqueFd fd, open_at(parent, leaf, O_RDONLY | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW)));
  // What was opened counts, should somebody have exchanged it since.
  struct stat now{};
  if (::fstat(fd.get(), &now) != 0 || !S_ISREG(now.st_mode) || now.st_ino != status.st_ino)
    return fail(ErrorCode::kInvalidState, entry.name + " was exchanged while it was copied");
  entry.size = static_cast<std::uint64_t>(now.st_size);
  find_extents(fd.get(), entry, static_cast<std::uint64_t>(now.st_blocks) * 512);
  DRUPE_TRY(write_(encode_tar_entry(entry)));
  return data(fd.get(), entry);
}

Status TreeWriter::entry(int parent, const std::string& leaf, const std::string& name, bool follow,
                         int depth) {
  struct stat status{};
  if (::fstatat(parent, leaf.c_str(), &status, follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0)
    return fail_sys("Reading " + leaf + " failed", errno);
  TarEntry entry;
  entry.name = name;
  entry.mode = status.st_mode & 07777U;
  entry.uid = options_.keep_owner ? status.st_uid : 0;
  entry.gid = options_.keep_owner ? status.st_gid : 0;
  entry.mtime_ns = nanoseconds(status.st_mtim);
  if (!S_ISDIR(status.st_mode) && status.st_nlink > 1) {
    const auto [first, is_new] = seen_.try_emplace({status.st_dev, status.st_ino}, name);
    if (!is_new) {
      entry.type = 'h';
      entry.link = first->second;
      return write_(encode_tar_entry(entry));
    }
  }
  if (S_ISREG(status.st_mode)) return file(parent, leaf, std::move(entry), status, follow);
  if (S_ISDIR(status.st_mode)) {
    entry.type = 'd';
    DRUPE_TRY(write_(encode_tar_entry(entry)));
    DRUPE_ASSIGN(auto folder, open_at(parent, leaf, O_RDONLY | O_DIRECTORY | (follow ? 0 : O_NOFOLLOW)));
    return children(std::move(folder), name, depth + 1);
  }
  if (S_ISLNK(status.st_mode)) {
    std::array<char, 4096> target{};
    const auto size = ::readlinkat(parent, leaf.c_str(), target.data(), target.size());
    if (size < 0) return fail_sys("Reading the link " + leaf + " failed", errno);
    entry.type = 'l';
    entry.link.assign(target.data(), static_cast<std::size_t>(size));
  } else if (S_ISFIFO(status.st_mode)) {
    entry.type = 'p';
  } else {
    return {};
  }
  return write_(encode_tar_entry(entry));
}

Status TreeWriter::children(UniqueFd folder, const std::string& name, int depth) {
  if (depth > kMaxDepth) return fail(ErrorCode::kLimit, "The folder is more than 512 levels deep");
  const std::unique_ptr<DIR, CloseDirectory> directory(::fdopendir(folder.get()));
  if (directory == nullptr) return fail_sys("Reading a folder failed", errno);
  const int fd = folder.release();  // The DIR owns it now.
  std::vector<std::string> leaves;
  while (const dirent* item = ::readdir(directory.get())) {
    const std::string leaf = item->d_name;
    if (leaf != "." && leaf != "..") leaves.push_back(leaf);
  }
  std::sort(leaves.begin(), leaves.end());
  for (const auto& leaf : leaves)
    DRUPE_TRY(entry(fd, leaf, name.empty() ? leaf : name + "/" + leaf, false, depth));
  return {};
}

}  // namespace

Status write_tree(const std::string& path, const std::string& name, const TreeOptions& options,
                  const WriteBytes& write) {
  TreeWriter writer(options, write);
  if (name.empty()) {
    DRUPE_ASSIGN(auto folder, open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY));
    DRUPE_TRY(writer.children(std::move(folder), "", 0));
  } else {
    DRUPE_TRY(writer.entry(AT_FDCWD, path, name, options.follow_link, 0));
  }
  return write(tar_end());
}

}  // namespace drupe::cli
