#include "agent/work.h"

#include <cerrno>
#include <initializer_list>
#include <utility>

#include <fcntl.h>
#include <linux/sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// <sched.h> and <linux/sched.h> cannot both be included for everything needed here.
extern "C" int setns(int fd, int nstype) noexcept;

namespace drupe::agent {
namespace {

using Options = std::initializer_list<std::pair<const char*, const char*>>;

Result<UniqueFd> new_mount(const char* type, const Options& options, unsigned attributes) {
  const UniqueFd context(::fsopen(type, FSOPEN_CLOEXEC));
  if (!context.valid()) return fail_sys(std::string("Opening the file system ") + type + " failed", errno);
  for (const auto& [key, value] : options) {
    if (::fsconfig(context.get(), FSCONFIG_SET_STRING, key, value, 0) != 0)
      return fail_sys(std::string("Setting ") + key + " of " + type + " failed", errno);
  }
  if (::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return fail_sys(std::string("Mounting ") + type + " failed", errno);
  UniqueFd mount(::fsmount(context.get(), FSMOUNT_CLOEXEC, attributes));
  if (!mount.valid()) return fail_sys(std::string("Mounting ") + type + " failed", errno);
  return mount;
}

}  // namespace

Result<Work> Work::create(Cgroups& cgroups) {
  Work work;
  DRUPE_ASSIGN(work.root_, new_mount("ext4", {{"source", "/dev/vda"}}, 0));
  DRUPE_ASSIGN(work.devpts_, new_mount("devpts", {{"ptmxmode", "0666"}, {"mode", "0620"}, {"gid", "5"}},
                                       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  DRUPE_ASSIGN(const UniqueFd extras,
               new_mount("tmpfs", {{"size", "4m"}, {"mode", "0755"}}, MOUNT_ATTR_NODEV));
  DRUPE_ASSIGN(work.boot_id_, open_at(extras.get(), "boot_id", O_RDWR | O_CREAT, 0444));
  DRUPE_TRY(work.set_boot_id(slurp(AT_FDCWD, "/proc/sys/kernel/random/boot_id")));
  DRUPE_ASSIGN(work.names_, NameFiles::create(extras.get(), work.root_.get()));
  DRUPE_ASSIGN(work.own_pid_ns_, open_at(AT_FDCWD, "/proc/self/ns/pid", O_RDONLY));
  DRUPE_ASSIGN(Pipe ready, make_pipe());
  ::mkdir("/sandbox", 0755);
  constexpr std::uint64_t kNamespaces = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC;
  work.init_pid_ = clone_process(kNamespaces, cgroups.work(), &work.init_);
  if (work.init_pid_ < 0) return fail_sys("Making the namespaces of user work failed", errno);
  if (work.init_pid_ == 0) {
    ready.read.reset();
    run_work_init({work.root_.get(), work.devpts_.get(), extras.get()}, std::move(ready.write));
  }
  ready.write.reset();
  DRUPE_ASSIGN(const std::string answer, read_all(ready.read.get(), 4096));
  if (answer != "ok") return fail(ErrorCode::kGuest, answer.empty() ? "The init of user work died" : answer);
  DRUPE_TRY(cgroups.settle(work.init_pid_));
  // The host name that the agent sets is the one of user work.
  if (setns(work.init_.get(), CLONE_NEWUTS) != 0)
    return fail_sys("Entering the host name's namespace failed", errno);
  return work;
}

pid_t Work::clone(ChildNamespace where, int cgroup, UniqueFd* pidfd) {
  if (where != current_) {
    const int target = where == ChildNamespace::kWork ? init_.get() : own_pid_ns_.get();
    if (setns(target, CLONE_NEWPID) != 0) return -1;
    current_ = where;
  }
  return clone_process(0, cgroup, pidfd);
}

Status Work::enter() const {
  if (setns(init_.get(), CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWCGROUP) != 0)
    return fail_sys("Entering the namespaces of user work failed", errno);
  return {};
}

Result<UniqueFd> Work::open_pty() const {
  return open_at(devpts_.get(), "ptmx", O_RDWR | O_NOCTTY);
}

Status Work::set_boot_id(const std::string& id) {
  boot_id_text_ = id;
  return pwrite_all(boot_id_.get(), id, 0);
}

}  // namespace drupe::agent
