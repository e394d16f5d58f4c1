#include "agent/tasks.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/tree.h"
#include "agent/users.h"
#include "base/files.h"

namespace drupe::agent {
namespace {

constexpr std::size_t kFlushAt = 32 * 1024;
constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE

std::string_view last_component(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

Result<std::string> stat_task(const FileOptions& options) {
  struct stat info{};
  if (::fstatat(AT_FDCWD, options.path.c_str(), &info, options.no_follow ? AT_SYMLINK_NOFOLLOW : 0) != 0)
    return file_error("Looking at", options.path, errno);
  StatResult stat = to_stat(options.path, info);
  if (stat.type == 'l') stat.link_target = read_link(AT_FDCWD, options.path);
  return encode_stat(stat);
}

Status set_owner(const FileOptions& options) {
  if (options.uid < 0 && options.gid < 0) return {};
  const auto uid = static_cast<uid_t>(options.uid);  // -1: leave
  const auto gid = static_cast<gid_t>(options.gid);
  if (::fchownat(AT_FDCWD, options.path.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW) != 0)
    return file_error("Changing the owner of", options.path, errno);
  return {};
}

Result<std::string> mkdir_task(const FileOptions& options) {
  if (options.parents) DRUPE_TRY(make_parents(options.path));
  if (::mkdir(options.path.c_str(), options.mode == 0 ? 0755 : options.mode & 07777) != 0) {
    const int err = errno;
    struct stat info{};
    const bool there =
        err == EEXIST && options.parents && ::stat(options.path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    if (!there) return file_error("Creating the directory", options.path, err);
    return std::string();
  }
  if (options.mode != 0 && ::chmod(options.path.c_str(), options.mode & 07777) != 0)
    return file_error("Setting the mode of", options.path, errno);
  DRUPE_TRY(set_owner(options));
  return std::string();
}

Result<std::string> remove_task(const FileOptions& options) {
  const std::string_view last = last_component(options.path);
  if (last.empty() || last == "/" || last == "." || last == "..")
    return fail(ErrorCode::kInvalidArgument, "Removing \"" + options.path + "\" is refused",
                "Name a file or directory, not the root, \".\" or \"..\"");
  if (::unlink(options.path.c_str()) == 0) return std::string();
  if (errno != EISDIR && errno != EPERM) return file_error("Removing", options.path, errno);
  if (!options.recursive) {
    if (::rmdir(options.path.c_str()) != 0) return file_error("Removing the directory", options.path, errno);
    return std::string();
  }
  DRUPE_TRY(remove_whole_tree(options.path));
  return std::string();
}

Result<std::string> rename_task(const FileOptions& options) {
  if (options.parents) DRUPE_TRY(make_parents(options.target));
  const unsigned flags = options.exclusive ? kNoReplace : 0;
  if (::syscall(SYS_renameat2, AT_FDCWD, options.path.c_str(), AT_FDCWD, options.target.c_str(), flags) != 0)
    return file_error("Renaming", options.path + "\" to \"" + options.target, errno);
  return std::string();
}

Result<std::string> chmod_task(const FileOptions& options) {
  const auto mode = static_cast<mode_t>(options.mode & 07777);
  if (!options.recursive) {
    if (::chmod(options.path.c_str(), mode) != 0)
      return file_error("Changing the mode of", options.path, errno);
    return std::string();
  }
  DRUPE_TRY(
      each_in_tree(options.path, [mode](int dir, const std::string& name, const struct stat& info) -> Status {
        if (!S_ISLNK(info.st_mode) && ::fchmodat(dir, name.c_str(), mode, 0) != 0)
          return file_error("Changing the mode of", name, errno);
        return {};
      }));
  return std::string();
}

Result<std::string> chown_task(const FileOptions& options) {
  const auto uid = static_cast<uid_t>(options.uid);
  const auto gid = static_cast<gid_t>(options.gid);
  if (!options.recursive) {
    const int flags = options.no_follow ? AT_SYMLINK_NOFOLLOW : 0;
    if (::fchownat(AT_FDCWD, options.path.c_str(), uid, gid, flags) != 0)
      return file_error("Changing the owner of", options.path, errno);
    return std::string();
  }
  DRUPE_TRY(
      each_in_tree(options.path, [uid, gid](int dir, const std::string& name, const struct stat&) -> Status {
        if (::fchownat(dir, name.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW) != 0)
          return file_error("Changing the owner of", name, errno);
        return {};
      }));
  return std::string();
}

Result<std::string> symlink_task(const FileOptions& options) {
  if (options.parents) DRUPE_TRY(make_parents(options.path));
  if (::symlink(options.target.c_str(), options.path.c_str()) != 0)
    return file_error("Creating the link", options.path, errno);
  DRUPE_TRY(set_owner(options));
  return std::string();
}

}  // namespace

Result<std::string> run_task(OpenKind kind, const FileOptions& options) {
  ::umask(022);
  if (!options.user.empty()) {
    DRUPE_ASSIGN(const UserIds user, find_user_of_image(options.user));
    DRUPE_TRY(become(user));
  }
  if (options.path.empty() && kind != OpenKind::kTunnel && kind != OpenKind::kTrust &&
      kind != OpenKind::kSelf)
    return fail(ErrorCode::kInvalidArgument, "The path is empty");
  switch (kind) {
    case OpenKind::kReadFile:
      return read_file_task(options);
    case OpenKind::kWriteFile:
      return write_file_task(options);
    case OpenKind::kTarIn:
      return tar_in_task(options);
    case OpenKind::kTarOut:
      return tar_out_task(options);
    case OpenKind::kWalk:
      return walk_task(options);
    case OpenKind::kStat:
      return stat_task(options);
    case OpenKind::kMkdir:
      return mkdir_task(options);
    case OpenKind::kRemove:
      return remove_task(options);
    case OpenKind::kRename:
      return rename_task(options);
    case OpenKind::kChmod:
      return chmod_task(options);
    case OpenKind::kChown:
      return chown_task(options);
    case OpenKind::kSymlink:
      return symlink_task(options);
    case OpenKind::kList:
      return list_task(options);
    case OpenKind::kWatch:
      return watch_task(options);
    case OpenKind::kTunnel:
      return tunnel_task(options);
    case OpenKind::kTrust:
      return trust_task();
    case OpenKind::kSelf:
      return self_task();
    default:
      return fail(ErrorCode::kUnsupported, "This kind of stream is not known here");
  }
}

std::unexpected<Error> file_error(std::string_view doing, std::string_view path, int err) {
  Error error{ErrorCode::kGuest, {}, {}, err};
  error.message.append(doing).append(" \"").append(path).append("\" failed: ").append(std::strerror(err));
  switch (err) {
    case ENOENT:
      error.code = ErrorCode::kNotFound;
      break;
    case EEXIST:
      error.code = ErrorCode::kAlreadyExists;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      error.code = ErrorCode::kPermission;
      break;
    case ENOSPC:
    case EDQUOT:
      error.code = ErrorCode::kLimit;
      error.next_step = "Free some room on the sandbox's disk";
      break;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EFBIG:
      error.code = ErrorCode::kLimit;
      break;
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case EINVAL:
    case ENOTEMPTY:
    case EBUSY:
    case EXDEV:
      error.code = ErrorCode::kInvalidArgument;
      break;
    default:
      break;
  }
  return std::unexpected(std::move(error));
}

StatResult to_stat(std::string name, const struct stat& info) {
  StatResult stat;
  stat.name = std::move(name);
  stat.type = S_ISDIR(info.st_mode)    ? 'd'
              : S_ISLNK(info.st_mode)  ? 'l'
              : S_ISCHR(info.st_mode)  ? 'c'
              : S_ISBLK(info.st_mode)  ? 'b'
              : S_ISFIFO(info.st_mode) ? 'p'
              : S_ISSOCK(info.st_mode) ? 's'
                                       : 'f';
  stat.size = static_cast<std::uint64_t>(info.st_size);
  stat.allocated = static_cast<std::uint64_t>(info.st_blocks) * 512;
  stat.mode = info.st_mode & 07777;
  stat.uid = info.st_uid;
  stat.gid = info.st_gid;
  stat.mtime_ns = static_cast<std::int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
  stat.inode = info.st_ino;
  return stat;
}

std::string encode_stat(const StatResult& stat) {
  ByteWriter writer;
  stat.append_to(writer);
  return writer.take();
}

std::string read_link(int dir, const std::string& name) {
  std::array<char, 4096> target;
  const ssize_t size = ::readlinkat(dir, name.c_str(), target.data(), target.size());
  return size > 0 ? std::string(target.data(), static_cast<std::size_t>(size)) : std::string();
}

Status make_parents(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), 0755) != 0 && errno != EEXIST)
      return file_error("Creating the directory", part, errno);
  }
  return {};
}

void Output::write(std::string_view bytes) {
  buffer_.append(bytes);
  if (buffer_.size() >= kFlushAt) flush();
}

void Output::record(RecordKind kind, std::string_view body) {
  append_record(buffer_, kind, body);
  if (buffer_.size() >= kFlushAt) flush();
}

void Output::flush() {
  if (!write_all(STDOUT_FILENO, buffer_)) ::_exit(1);
  buffer_.clear();
}

}  // namespace drupe::agent
