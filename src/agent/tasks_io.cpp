// Reading and writing one file.
#include <algorithm>
#include <cerrno>
#include <memory>

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/sys.h"
#include "agent/tasks.h"
#include "base/files.h"
#include "base/ids.h"

namespace drupe::agent {
namespace {

constexpr std::size_t kChunk = 256 * 1024;
constexpr int kMaxLinks = 40;
constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE

/// Copies up to `left` bytes of `file` to descriptor 1.
Status copy_out(int file, const std::string& path, std::uint64_t left) {
  bool direct = true;  // files of procfs and the like cannot be spliced
  std::unique_ptr<char[]> buffer;
  while (left > 0) {
    const std::size_t size = static_cast<std::size_t>(std::min<std::uint64_t>(left, kChunk));
    ssize_t got = 0;
    if (direct) {
      got = ::sendfile(STDOUT_FILENO, file, nullptr, size);
      if (got < 0 && errno == EINVAL) {
        direct = false;
        buffer.reset(new char[kChunk]);
        continue;
      }
    } else {
      got = ::read(file, buffer.get(), size);
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error("Reading", path, errno);
    if (got == 0) return {};
    if (!direct) DRUPE_TRY(write_all(STDOUT_FILENO, {buffer.get(), static_cast<std::size_t>(got)}));
    left -= static_cast<std::uint64_t>(got);
  }
  return {};
}

/// Everything on descriptor 0 goes to `file`.
Status copy_in(int file, const std::string& path) {
  const std::unique_ptr<char[]> buffer(new char[kChunk]);
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, buffer.get(), kChunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error("Receiving", path, errno);
    if (got == 0) return {};
    if (auto written = write_all(file, {buffer.get(), static_cast<std::size_t>(got)}); !written)
      return file_error("Writing", path, written.error().sys_errno);
  }
}

Result<std::string> describe(int file, const std::string& path) {
  struct stat info{};
  if (::fstat(file, &info) != 0) return file_error("Looking at", path, errno);
  return encode_stat(to_stat(path, info));
}

/// Follows the links at the end of `path`, so that the file behind them is replaced and not the link.
Result<std::string> real_target(const FileOptions& options) {
  std::string path = options.path;
  for (int i = 0; i < kMaxLinks; ++i) {
    const std::string target = read_link(AT_FDCWD, path);
    if (target.empty()) return path;
    if (options.no_follow) return file_error("Writing", path, ELOOP);
    if (target[0] == '/')
      path = target;
    else
      path = path.substr(0, path.rfind('/') + 1) + target;
  }
  return file_error("Writing", options.path, ELOOP);
}

Status apply_attributes(int file, const FileOptions& options, const struct stat* old,
                        const std::string& path) {
  const bool keep_owner = old != nullptr && options.uid < 0 && options.gid < 0;
  const auto uid = keep_owner ? old->st_uid : static_cast<uid_t>(options.uid);
  const auto gid = keep_owner ? old->st_gid : static_cast<gid_t>(options.gid);
  // An owner that was only to be kept may be beyond the rights of the user this runs as.
  if (::fchown(file, uid, gid) != 0 && !keep_owner) return file_error("Changing the owner of", path, errno);
  mode_t mode = old != nullptr ? old->st_mode & 07777 : 0644;
  if (options.mode != 0) mode = options.mode & 07777;
  if (::fchmod(file, mode) != 0) return file_error("Changing the mode of", path, errno);
  return {};
}

Result<std::string> write_in_place(const FileOptions& options, const std::string& path) {
  int flags = O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC;
  if (options.append) flags |= O_APPEND;
  if (options.exclusive) flags |= O_EXCL;
  const bool existed = ::access(path.c_str(), F_OK) == 0;
  const UniqueFd file(::open(path.c_str(), flags, 0644));
  if (!file.valid()) return file_error("Opening", path, errno);
  if (options.ranged && ::lseek(file.get(), static_cast<off_t>(options.offset), SEEK_SET) < 0)
    return file_error("Seeking in", path, errno);
  if (!existed || options.mode != 0 || options.uid >= 0 || options.gid >= 0) {
    struct stat old{};
    const bool known = existed && ::fstat(file.get(), &old) == 0;
    DRUPE_TRY(apply_attributes(file.get(), options, known ? &old : nullptr, path));
  }
  DRUPE_TRY(copy_in(file.get(), path));
  return describe(file.get(), path);
}

Result<std::string> write_over(const FileOptions& options, const std::string& path) {
  if (::truncate(path.c_str(), 0) != 0) return file_error("Writing", path, errno);
  return write_in_place(options, path);
}

/// A file without a name where the file system offers it, so that an interrupted upload leaves nothing
/// behind.
struct Unpublished {
  UniqueFd file;
  std::string name;  ///< Empty while it has none.
};

Result<Unpublished> open_unpublished(const std::string& directory, const std::string& temporary) {
  Unpublished fresh;
  // Giving it a name needs rights that an ordinary user lacks.
  if (::geteuid() == 0)
    fresh.file = UniqueFd(::open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (fresh.file.valid()) return fresh;
  fresh.file =
      UniqueFd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fresh.file.valid()) return file_error("Creating a file in", directory, errno);
  fresh.name = temporary;
  return fresh;
}

Status publish(const Unpublished& fresh, const std::string& temporary, const std::string& path,
               bool exclusive) {
  if (fresh.name.empty() && ::linkat(fresh.file.get(), "", AT_FDCWD, temporary.c_str(), AT_EMPTY_PATH) != 0)
    return file_error("Creating", path, errno);
  if (::syscall(SYS_renameat2, AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(),
                exclusive ? kNoReplace : 0U) == 0)
    return {};
  const int err = errno;
  ::unlink(temporary.c_str());
  return file_error("Creating", path, err);
}

Result<std::string> write_atomically(const FileOptions& options, const std::string& path,
                                     const struct stat* old) {
  const auto slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const std::string temporary = (slash == std::string::npos ? "" : directory) + ".upload-" + random_id();
  DRUPE_ASSIGN(const Unpublished fresh, open_unpublished(directory, temporary));
  auto done = copy_in(fresh.file.get(), path);
  if (done) done = apply_attributes(fresh.file.get(), options, old, path);
  if (!done) {
    if (!fresh.name.empty()) ::unlink(fresh.name.c_str());
    return std::unexpected(std::move(done).error());
  }
  DRUPE_TRY(publish(fresh, temporary, path, options.exclusive));
  return describe(fresh.file.get(), options.path);
}

}  // namespace

Result<std::string> read_file_task(const FileOptions& options) {
  const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (options.no_follow ? O_NOFOLLOW : 0);
  const UniqueFd file(::open(options.path.c_str(), flags));
  if (!file.valid()) return file_error("Opening", options.path, errno);
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return file_error("Looking at", options.path, errno);
  if (S_ISDIR(info.st_mode)) return file_error("Reading", options.path, EISDIR);
  if (!S_ISREG(info.st_mode))
    return fail(ErrorCode::kInvalidArgument, "\"" + options.path + "\" is not a regular file",
                "Read it with a command in the sandbox");
  if (options.offset != 0 && ::lseek(file.get(), static_cast<off_t>(options.offset), SEEK_SET) < 0)
    return file_error("Seeking in", options.path, errno);
  DRUPE_TRY(copy_out(file.get(), options.path, options.length == 0 ? ~std::uint64_t{0} : options.length));
  return describe(file.get(), options.path);
}

Result<std::string> write_file_task(const FileOptions& options) {
  if (options.parents) DRUPE_TRY(make_parents(options.path));
  DRUPE_ASSIGN(const std::string path, real_target(options));
  if (path.ends_with('/')) return file_error("Writing", path, EISDIR);
  struct stat old{};
  const bool exists = ::lstat(path.c_str(), &old) == 0;
  if (exists && S_ISDIR(old.st_mode)) return file_error("Writing", path, EISDIR);
  if (exists && options.exclusive) return file_error("Creating", path, EEXIST);
  if (options.append || options.ranged || (exists && !S_ISREG(old.st_mode)))
    return write_in_place(options, path);
  if (exists && is_mount_point(AT_FDCWD, path)) return write_over(options, path);
  auto written = write_atomically(options, path, exists ? &old : nullptr);
  // Files of procfs and sysfs, and writable files in directories that are not: there is no beside, only in.
  const bool no_beside = !written && exists && written.error().message.starts_with("Creating a file in");
  if (no_beside && written.error().code != ErrorCode::kLimit) return write_in_place(options, path);
  return written;
}

}  // namespace drupe::agent
