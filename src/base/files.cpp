#include "base/files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ids.h"

namespace drupe {

Result<UniqueFd> open_at(DirFd dir, const std::string& path, int flags, mode_t mode) {
  int fd = -1;
  do fd = ::openat(dir, path.c_str(), flags | O_CLOEXEC, mode);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) return fail_sys("Opening " + path + " failed", errno);
  return UniqueFd(fd);
}

Result<UniqueFd> make_dir_at(DirFd dir, const std::string& path) {
  if (::mkdirat(dir, path.c_str(), 0700) != 0 && errno != EEXIST)
    return fail_sys("Creating the directory " + path + " failed", errno);
  return open_at(dir, path, O_DIRECTORY | O_RDONLY);
}

Status make_dirs(const std::string& path) {
  for (std::size_t at = 1; at <= path.size(); ++at) {
    if (at != path.size() && path[at] != '/') continue;
    const std::string part = path.substr(0, at);
    if (::mkdirat(AT_FDCWD, part.c_str(), 0700) != 0 && errno != EEXIST)
      return fail_sys("Creating the directory " + part + " failed", errno);
  }
  return {};
}

Result<std::string> read_all(int fd, std::size_t limit) {
  std::string out;
  // On the stack and not cleared: mostly a few hundred bytes come, and nothing else is touched.
  std::array<char, 16384> chunk;
  while (true) {
    const ssize_t got = ::read(fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_sys("Reading failed", errno);
    if (got == 0) return out;
    if (out.size() + static_cast<std::size_t>(got) > limit)
      return fail(ErrorCode::kLimit, "The file is larger than " + std::to_string(limit) + " bytes");
    out.append(chunk.data(), static_cast<std::size_t>(got));
  }
}

Result<std::string> read_file(DirFd dir, const std::string& path, std::size_t limit) {
  DRUPE_ASSIGN(const UniqueFd fd, open_at(dir, path, O_RDONLY));
  auto bytes = read_all(fd.get(), limit);
  if (!bytes) return std::unexpected(std::move(bytes).error().in("Reading " + path + " failed"));
  return bytes;
}

Status write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail_sys("Writing failed", errno);
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

Status pwrite_all(int fd, std::string_view bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail_sys("Writing failed", errno);
    bytes.remove_prefix(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
  return {};
}

Status copy_bytes(int in, int out, std::uint64_t offset, std::uint64_t size) {
  constexpr std::uint64_t kMostAtOnce = 1ULL << 30;
  constexpr std::uint64_t kBuffer = 256ULL << 10;
  const std::uint64_t end = offset + size;
  bool in_kernel = true;
  std::string buffer;
  while (offset < end) {
    if (in_kernel) {
      auto from = static_cast<off_t>(offset);
      auto to = from;
      const ssize_t done = ::copy_file_range(in, &from, out, &to, std::min(end - offset, kMostAtOnce), 0);
      if (done > 0) offset += static_cast<std::uint64_t>(done);
      // Two kinds of file systems, or one that cannot (copy_file_range(2)); 0 where a file has no true size.
      if (done < 0 && errno != EINTR && errno != EXDEV && errno != EINVAL && errno != ENOSYS &&
          errno != EOPNOTSUPP)
        return fail_sys("Copying failed", errno);
      in_kernel = done > 0 || (done < 0 && errno == EINTR);
      continue;
    }
    buffer.resize(std::min(end - offset, kBuffer));
    const ssize_t got = ::pread(in, buffer.data(), buffer.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_sys("Reading the file to copy failed", errno);
    if (got == 0) return fail(ErrorCode::kIntegrity, "The file to copy has become shorter");
    DRUPE_TRY(pwrite_all(out, std::string_view(buffer).substr(0, static_cast<std::size_t>(got)), offset));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

Status replace_file(DirFd dir, const std::string& path, std::string_view bytes, Sync sync, mode_t mode) {
  const std::string temporary = path + ".tmp-" + random_id();
  {
    DRUPE_ASSIGN(const UniqueFd fd, open_at(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode));
    auto written = write_all(fd.get(), bytes);
    if (written && sync == Sync::kYes && ::fsync(fd.get()) != 0)
      written = fail_sys("Flushing " + path + " failed", errno);
    if (!written) {
      ::unlinkat(dir, temporary.c_str(), 0);
      return std::unexpected(std::move(written).error().in("Writing " + path + " failed"));
    }
  }
  if (::renameat(dir, temporary.c_str(), dir, path.c_str()) != 0) {
    const int err = errno;
    ::unlinkat(dir, temporary.c_str(), 0);
    return fail_sys("Replacing " + path + " failed", err);
  }
  if (sync == Sync::kYes) {
    const auto slash = path.rfind('/');
    const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    DRUPE_ASSIGN(const UniqueFd parent_fd, open_at(dir, parent, O_DIRECTORY | O_RDONLY));
    if (::fsync(parent_fd.get()) != 0)
      return fail_sys("Flushing the directory of " + path + " failed", errno);
  }
  return {};
}

namespace {

struct CloseDirectory {
  void operator()(DIR* stream) const { ::closedir(stream); }
};

/// One pass over the entries of a folder.
Status remove_entries(DirFd dir, const std::string& path) {
  auto opened = open_at(dir, path, O_DIRECTORY | O_RDONLY | O_NOFOLLOW);
  if (!opened) {
    if (opened.error().sys_errno == ENOENT) return {};
    return std::unexpected(std::move(opened).error());
  }
  const int own = opened->get();
  const std::unique_ptr<DIR, CloseDirectory> stream(::fdopendir(opened->release()));
  if (!stream) return fail_sys("Listing " + path + " failed", errno);
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    DRUPE_TRY(remove_tree(own, name));
  }
  return {};
}

}  // namespace

Status remove_tree(DirFd dir, const std::string& path) {
  // A process that is just ending may still put a file into the folder; a few passes outlast it.
  constexpr int kPasses = 16;
  if (::unlinkat(dir, path.c_str(), 0) == 0 || errno == ENOENT) return {};
  if (errno != EISDIR && errno != EPERM) return fail_sys("Removing " + path + " failed", errno);
  for (int pass = 1;; ++pass) {
    DRUPE_TRY(remove_entries(dir, path));
    if (::unlinkat(dir, path.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return {};
    if (errno != ENOTEMPTY || pass == kPasses) return fail_sys("Removing " + path + " failed", errno);
  }
}

std::string proc_fd_path(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

}  // namespace drupe
