// A root directory with nothing in it but what the program needs, built from detached mounts.
#include <cerrno>
#include <climits>

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/confine_steps.h"

namespace drupe::confine_steps {
namespace {

constexpr const char* kMountPoint = "/usr";  // any directory that is always there; covered for a moment

Status make_parents(const std::string& path) {
  for (std::size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1)) {
    if (at == 0) continue;
    if (::mkdir(path.substr(0, at).c_str(), 0755) != 0 && errno != EEXIST)
      return fail_sys("Creating a directory in the empty root failed", errno);
  }
  return {};
}

bool covered(const std::string& path, const std::vector<RootSource>& sources) {
  for (const auto& source : sources)
    if (path == source.path || (!source.link_target.empty() && path.starts_with(source.path + "/")) ||
        (source.directory && path.starts_with(source.path + "/")))
      return true;
  return false;
}

Result<RootSource> clone_one(const std::string& path, const struct stat& info) {
  RootSource source;
  source.path = path;
  if (S_ISLNK(info.st_mode)) {
    char target[PATH_MAX];
    const ssize_t size = ::readlink(path.c_str(), target, sizeof target);
    if (size < 0) return fail_sys("Reading the link " + path + " failed", errno);
    source.link_target.assign(target, static_cast<std::size_t>(size));
    return source;
  }
  source.directory = S_ISDIR(info.st_mode);
  source.tree =
      UniqueFd(::open_tree(AT_FDCWD, path.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE));
  if (!source.tree.valid()) return fail_sys("Copying the mount of " + path + " failed", errno);
  mount_attr attr{};
  attr.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  if (::mount_setattr(source.tree.get(), "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof attr) != 0)
    return fail_sys("Making the mount of " + path + " read-only failed", errno);
  return source;
}

Status place(const RootSource& source) {
  const std::string relative = source.path.substr(1);
  DRUPE_TRY(make_parents(relative));
  if (!source.link_target.empty()) {
    if (::symlink(source.link_target.c_str(), relative.c_str()) != 0 && errno != EEXIST)
      return fail_sys("Creating the link " + source.path + " in the empty root failed", errno);
    return {};
  }
  if (source.directory) {
    if (::mkdir(relative.c_str(), 0755) != 0 && errno != EEXIST)
      return fail_sys("Creating " + source.path + " in the empty root failed", errno);
  } else {
    const UniqueFd file(::open(relative.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    if (!file.valid()) return fail_sys("Creating " + source.path + " in the empty root failed", errno);
  }
  if (::move_mount(source.tree.get(), "", AT_FDCWD, relative.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0)
    return fail_sys("Mounting " + source.path + " in the empty root failed", errno);
  return {};
}

}  // namespace

Result<std::vector<RootSource>> clone_root_sources(const std::vector<PathRule>& paths) {
  std::vector<RootSource> sources;
  for (const auto& rule : paths) {
    if (rule.path.empty() || rule.path.front() != '/')
      return fail(ErrorCode::kInvalidArgument, "A confined path must be absolute: " + rule.path);
    if (covered(rule.path, sources)) continue;
    struct stat info{};
    if (::lstat(rule.path.c_str(), &info) != 0) return fail_sys("Looking up " + rule.path + " failed", errno);
    DRUPE_ASSIGN(auto source, clone_one(rule.path, info));
    sources.push_back(std::move(source));
  }
  return sources;
}

Status enter_empty_root(const std::vector<RootSource>& sources) {
  const UniqueFd context(::fsopen("tmpfs", FSOPEN_CLOEXEC));
  if (!context.valid()) return fail_sys("Making an empty root failed", errno);
  ::fsconfig(context.get(), FSCONFIG_SET_STRING, "size", "1m", 0);
  ::fsconfig(context.get(), FSCONFIG_SET_STRING, "mode", "0755", 0);
  if (::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return fail_sys("Making an empty root failed", errno);
  const UniqueFd root(::fsmount(context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  if (!root.valid()) return fail_sys("Making an empty root failed", errno);
  if (::move_mount(root.get(), "", AT_FDCWD, kMountPoint, MOVE_MOUNT_F_EMPTY_PATH) != 0)
    return fail_sys("Mounting an empty root failed", errno);
  if (::fchdir(root.get()) != 0) return fail_sys("Entering the empty root failed", errno);
  for (const auto& source : sources) DRUPE_TRY(place(source));
  mount_attr attr{};
  attr.attr_set = MOUNT_ATTR_RDONLY;
  if (::mount_setattr(root.get(), "", AT_EMPTY_PATH, &attr, sizeof attr) != 0)
    return fail_sys("Making the empty root read-only failed", errno);
  // The old root lands on the same place, above the new one, and is taken away.
  if (::syscall(SYS_pivot_root, ".", ".") != 0) return fail_sys("Changing to the empty root failed", errno);
  if (::umount2(".", MNT_DETACH) != 0) return fail_sys("Leaving the old root failed", errno);
  if (::chdir("/") != 0) return fail_sys("Entering the empty root failed", errno);
  return {};
}

}  // namespace drupe::confine_steps
