// PID 1 of user work: prepares the root it will see, then only reaps. The image may be hostile: nothing here
// follows a symbolic link of it; what must be a directory and is not is replaced, on the sandbox's own disk.
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <linux/sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/caps.h"
#include "agent/work.h"

extern "C" int unshare(int flags) noexcept;

namespace drupe::agent {
namespace {

/// A real directory `name` in `parent`, made when missing, put in the place of anything else.
Result<UniqueFd> own_directory(int parent, const char* name, mode_t mode) {
  constexpr int kFlags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  for (int attempt = 0; attempt < 2; ++attempt) {
    UniqueFd fd(::openat(parent, name, kFlags));
    if (fd.valid()) return fd;
    if (errno == ENOTDIR || errno == ELOOP) ::unlinkat(parent, name, 0);
    ::mkdirat(parent, name, mode);
  }
  return fail_sys(std::string("Making /") + name + " in the sandbox failed", errno);
}

Status attach(int mount, int target, const char* what) {
  if (::move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
    return fail_sys(std::string("Attaching ") + what + " failed", errno);
  return {};
}

Result<UniqueFd> simple_mount(const char* type, const char* key, const char* value, unsigned attributes) {
  const UniqueFd context(::fsopen(type, FSOPEN_CLOEXEC));
  if (!context.valid()) return fail_sys(std::string("Opening the file system ") + type + " failed", errno);
  if ((key != nullptr && ::fsconfig(context.get(), FSCONFIG_SET_STRING, key, value, 0) != 0) ||
      ::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return fail_sys(std::string("Mounting ") + type + " failed", errno);
  UniqueFd mount(::fsmount(context.get(), FSMOUNT_CLOEXEC, attributes));
  if (!mount.valid()) return fail_sys(std::string("Mounting ") + type + " failed", errno);
  return mount;
}

struct Node {
  const char* name;
  unsigned major, minor;
};
constexpr Node kNodes[] = {{"null", 1, 3},    {"zero", 1, 5}, {"full", 1, 7},   {"random", 1, 8},
                           {"urandom", 1, 9}, {"tty", 5, 0},  {"fuse", 10, 229}};

struct Link {
  const char* name;
  const char* target;
};
constexpr Link kLinks[] = {{"fd", "/proc/self/fd"},       {"stdin", "/proc/self/fd/0"},
                           {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"},
                           {"ptmx", "pts/ptmx"},          {"core", "/proc/kcore"}};

Status fill_dev(int root, int devpts) {
  DRUPE_ASSIGN(const UniqueFd dev, simple_mount("tmpfs", "mode", "0755", MOUNT_ATTR_NOSUID));
  for (const auto& node : kNodes) {
    if (::mknodat(dev.get(), node.name, S_IFCHR | 0666, ::makedev(node.major, node.minor)) != 0)
      return fail_sys("Making a device node failed", errno);
  }
  for (const auto& link : kLinks) {
    if (::symlinkat(link.target, dev.get(), link.name) != 0) return fail_sys("Filling /dev failed", errno);
  }
  DRUPE_ASSIGN(const UniqueFd at, own_directory(root, "dev", 0755));
  DRUPE_TRY(attach(dev.get(), at.get(), "/dev"));
  DRUPE_ASSIGN(const UniqueFd pts, own_directory(dev.get(), "pts", 0755));
  DRUPE_TRY(attach(devpts, pts.get(), "/dev/pts"));
  DRUPE_ASSIGN(const UniqueFd shm, own_directory(dev.get(), "shm", 01777));
  DRUPE_ASSIGN(const UniqueFd memory,
               simple_mount("tmpfs", "mode", "1777", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  DRUPE_TRY(attach(memory.get(), shm.get(), "/dev/shm"));
  DRUPE_ASSIGN(const UniqueFd queue_at, own_directory(dev.get(), "mqueue", 01777));
  // A kernel without message queues is none the worse for user work that has none.
  const auto queue =
      simple_mount("mqueue", nullptr, nullptr, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
  if (queue) return attach(queue->get(), queue_at.get(), "/dev/mqueue");
  return {};
}

/// Files of the agent's, each as a mount of its own.
struct FileMounts {
  UniqueFd boot_id;
  std::array<UniqueFd, kNameFiles.size()> names;
};

Result<UniqueFd> file_mount(int extras, const char* name) {
  UniqueFd file(::open_tree(extras, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
  if (!file.valid()) return fail_sys(std::string("Preparing ") + name + " failed", errno);
  return file;
}

/// A file system must be part of the tree for a moment to give mounts of its files.
Result<FileMounts> file_mounts(int extras) {
  DRUPE_ASSIGN(const UniqueFd at, open_at(AT_FDCWD, "/sandbox", O_PATH | O_DIRECTORY));
  DRUPE_TRY(attach(extras, at.get(), "a file system of the agent's"));
  FileMounts mounts;
  DRUPE_ASSIGN(mounts.boot_id, file_mount(extras, "boot_id"));
  for (std::size_t i = 0; i < kNameFiles.size(); ++i) {
    DRUPE_ASSIGN(mounts.names[i], file_mount(extras, kNameFiles[i].name));
  }
  ::umount2("/sandbox", MNT_DETACH);
  return mounts;
}

/// The place of a name file in the image: a file, put in the place of a link or of a special file.
Result<UniqueFd> own_file(int parent, const NameFile& wanted) {
  struct stat info{};
  if (::fstatat(parent, wanted.name, &info, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(info.st_mode))
    ::unlinkat(parent, wanted.name, S_ISDIR(info.st_mode) ? AT_REMOVEDIR : 0);
  const UniqueFd made(
      ::openat(parent, wanted.name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, wanted.mode));
  UniqueFd fd(::openat(parent, wanted.name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return fail_sys(std::string("Making /etc/") + wanted.name + " in the sandbox failed", errno);
  return fd;
}

/// What an image makes impossible here, it alone goes without.
void fill_etc(int root, const FileMounts& mounts) {
  const auto etc = open_etc(root, O_RDONLY | O_DIRECTORY);
  if (!etc) return say(etc.error().message);
  for (std::size_t i = 0; i < kNameFiles.size(); ++i) {
    const auto at = own_file(etc->get(), kNameFiles[i]);
    const auto done =
        at ? attach(mounts.names[i].get(), at->get(), kNameFiles[i].name) : std::unexpected(at.error());
    if (!done) say(done.error().message);
  }
  struct stat info{};
  if (::fstatat(etc->get(), "mtab", &info, AT_SYMLINK_NOFOLLOW) != 0 &&
      ::symlinkat("/proc/mounts", etc->get(), "mtab") != 0)
    say("making /etc/mtab failed");
}

Status fill_proc(int root, int boot_id) {
  DRUPE_ASSIGN(const UniqueFd proc, simple_mount("proc", nullptr, nullptr,
                                                 MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  DRUPE_ASSIGN(const UniqueFd at, own_directory(root, "proc", 0555));
  DRUPE_TRY(attach(proc.get(), at.get(), "/proc"));
  const UniqueFd target(::openat(proc.get(), "sys/kernel/random/boot_id", O_PATH | O_CLOEXEC));
  if (!target.valid()) return fail_sys("Finding the boot id failed", errno);
  return attach(boot_id, target.get(), "the boot id");
}

Status fill_sys(int root) {
  constexpr unsigned kReadOnly = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  DRUPE_ASSIGN(const UniqueFd sys, simple_mount("sysfs", nullptr, nullptr, kReadOnly));
  DRUPE_ASSIGN(const UniqueFd at, own_directory(root, "sys", 0555));
  DRUPE_TRY(attach(sys.get(), at.get(), "/sys"));
  DRUPE_ASSIGN(const UniqueFd cgroup, simple_mount("cgroup2", nullptr, nullptr, kReadOnly));
  const UniqueFd cgroup_at(::openat(sys.get(), "fs/cgroup", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!cgroup_at.valid()) return fail_sys("Finding /sys/fs/cgroup failed", errno);
  return attach(cgroup.get(), cgroup_at.get(), "/sys/fs/cgroup");
}

Status prepare(const WorkMounts& mounts) {
  if (unshare(CLONE_NEWCGROUP) != 0) return fail_sys("Making a cgroup namespace failed", errno);
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return fail_sys("Making the mounts private failed", errno);
  // Nothing of the agent's lies under the new root, should its cover ever be lifted.
  for (const char* own : {"/cg", "/dev", "/sys", "/proc"}) ::umount2(own, MNT_DETACH);
  ::umask(0);
  DRUPE_ASSIGN(const FileMounts files, file_mounts(mounts.extras));
  DRUPE_ASSIGN(const UniqueFd sandbox, open_at(AT_FDCWD, "/sandbox", O_PATH | O_DIRECTORY));
  DRUPE_TRY(attach(mounts.root, sandbox.get(), "the disk"));
  DRUPE_ASSIGN(const UniqueFd root, open_at(AT_FDCWD, "/sandbox", O_PATH | O_DIRECTORY));
  DRUPE_TRY(fill_proc(root.get(), files.boot_id.get()));
  DRUPE_TRY(fill_sys(root.get()));
  DRUPE_TRY(fill_dev(root.get(), mounts.devpts));
  for (const char* name : {"run", "etc"}) {
    // An image may keep these elsewhere by a link, which is its own affair.
    struct stat info{};
    if (::fstatat(root.get(), name, &info, AT_SYMLINK_NOFOLLOW) != 0)
      DRUPE_TRY(own_directory(root.get(), name, 0755));
  }
  fill_etc(root.get(), files);
  struct stat info{};
  if (::fstatat(root.get(), "tmp", &info, AT_SYMLINK_NOFOLLOW) != 0)
    DRUPE_TRY(own_directory(root.get(), "tmp", 01777));
  ::umask(022);
  // The initial root cannot be pivoted away, so the disk covers it.
  if (::fchdir(root.get()) != 0 || ::mount(".", "/", nullptr, MS_MOVE, nullptr) != 0 || ::chroot(".") != 0 ||
      ::chdir("/") != 0)
    return fail_sys("Changing to the sandbox's root failed", errno);
  return {};
}

[[noreturn]] void reap_for_ever() {
  sigset_t children;
  ::sigemptyset(&children);
  ::sigaddset(&children, SIGCHLD);
  while (true) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    siginfo_t info;
    ::sigwaitinfo(&children, &info);
  }
}

}  // namespace

void run_work_init(const WorkMounts& mounts, UniqueFd ready) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  ::setsid();
  const auto prepared = prepare(mounts);
  const std::string answer = prepared ? "ok" : prepared.error().message;
  [[maybe_unused]] const auto told = write_all(ready.get(), answer);
  if (!prepared) ::_exit(1);
  ::close_range(0, ~0U, 0);
  ::prctl(PR_SET_NAME, "init");
  drop_own_capabilities();  // user work may trace this process

  reap_for_ever();
}

}  // namespace drupe::agent
