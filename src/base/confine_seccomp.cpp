// The system calls that no helper of Drupe needs and an attacker would like. A list of what is denied, not of
// what is allowed: the C library and qemu change what they use with every update, and a helper that dies in
// the field because of a harmless call protects nobody. Everything here fails with an error, so that a probe
// for a feature falls back. The exception is Confinement::only_network, a program of our own that needs
// little: there the list says what is allowed.
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/confine_steps.h"

namespace drupe::confine_steps {
namespace {

constexpr std::array kDenied{
    // Other processes' memory and descriptors.
    "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise",
    // Namespaces and mounts.
    "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen",
    "fsconfig", "fsmount", "fspick", "mount_setattr", "open_by_handle_at", "name_to_handle_at",
    // Modes, owners and attributes of files that other sandboxes share by links: for them a read-only
    // descriptor is enough.
    "chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat", "utime", "utimes", "futimesat",
    "utimensat", "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr",
    // Large kernel surface.
    "bpf", "userfaultfd", "perf_event_open", "keyctl", "add_key", "request_key", "io_uring_setup",
    "io_uring_enter", "io_uring_register", "fanotify_init", "quotactl", "lookup_dcookie", "nfsservctl",
    "remap_file_pages", "vmsplice", "migrate_pages", "move_pages",
    // The machine itself.
    "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon",
    "swapoff", "acct", "syslog", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname",
    "setdomainname", "iopl", "ioperm", "modify_ldt", "vhangup", "personality"};

// The same for calls that libseccomp 2.5 has no names for, by their numbers, which all architectures share:
// fchmodat2, setxattrat, removexattrat, file_setattr.
constexpr std::array kDeniedNumbers{452, 463, 466, 469};

constexpr std::array kSockets{"socket", "socketpair", "bind", "connect", "listen"};
constexpr std::array kExec{"execve", "execveat", "fork", "vfork"};
constexpr std::array<unsigned long, 8> kNamespaceFlags{
    CLONE_NEWUSER,           CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS,
    0x02000000 /* CGROUP */, 0x00000080 /* TIME */};

struct Release {
  void operator()(void* filter) const { ::seccomp_release(filter); }
};
using Filter = std::unique_ptr<void, Release>;

// Names that this libseccomp does not know are calls that this kernel's ABI number table predates: nothing to
// deny.
template <class Names>
bool deny(void* filter, const Names& names, int err) {
  for (const char* name : names) {
    const int number = ::seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR) continue;
    const int rc = ::seccomp_rule_add(filter, SCMP_ACT_ERRNO(static_cast<std::uint32_t>(err)), number, 0);
    if (rc != 0 && rc != -EDOM) return false;
  }
  return true;
}

bool deny_clone(void* filter, bool allow_processes) {
  for (const unsigned long flag : kNamespaceFlags) {
    const auto bits = static_cast<scmp_datum_t>(flag);
    // CLONE_NEWTIME shares its bit with the exit signal of clone(); only clone3() can ask for it, and that is
    // denied.
    if (flag == 0x80) continue;
    if (::seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                           SCMP_A0(SCMP_CMP_MASKED_EQ, bits, bits)) != 0)
      return false;
  }
  // clone3() passes its flags in memory where no filter can see them; with ENOSYS the C library uses clone().
  if (::seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) != 0) return false;
  if (allow_processes) return true;
  return ::seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                            SCMP_A0(SCMP_CMP_MASKED_EQ, static_cast<scmp_datum_t>(CLONE_THREAD), 0)) == 0;
}

// What an event loop over sockets, the heap and the C library's clock and random numbers need. One that is
// missing here fails with EPERM.
constexpr std::array kNetworkCalls{
    // Bytes.
    "read", "write", "readv", "writev", "recvfrom", "recvmsg", "recvmmsg", "sendmsg", "sendmmsg", "close",
    "shutdown", "connect", "accept4", "getsockopt", "setsockopt", "getsockname", "getpeername",
    // Waiting.
    "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "restart_syscall",
    "clock_gettime", "clock_nanosleep", "gettimeofday", "futex", "sched_yield",
    // Memory; see kCallsWithProtection.
    "brk", "munmap", "mremap", "madvise",
    // Its own end.
    "exit", "exit_group", "rt_sigreturn", "rt_sigprocmask", "rt_sigaction", "getpid", "gettid",
    // The rest of what the C library asks for by itself; sigaltstack() is for sanitizers.
    "getrandom", "fstat", "newfstatat", "lseek", "sysinfo", "sigaltstack"};
// Of fcntl(): copies of descriptors for other processes; not whom signals go to, leases, locks or pipe sizes.
constexpr std::array kFcntlCommands{F_DUPFD_CLOEXEC, F_GETFD, F_GETFL};
constexpr std::array kCallsWithProtection{"mmap", "mprotect"};

using Conditions = std::vector<scmp_arg_cmp>;

scmp_arg_cmp equals(unsigned argument, long value) {
  return {argument, SCMP_CMP_EQ, static_cast<scmp_datum_t>(value), 0};
}
scmp_arg_cmp masked_equals(unsigned argument, long mask, long value) {
  return {argument, SCMP_CMP_MASKED_EQ, static_cast<scmp_datum_t>(mask), static_cast<scmp_datum_t>(value)};
}

bool allow(void* filter, const char* name, const Conditions& conditions = {}) {
  const int number = ::seccomp_syscall_resolve_name(name);
  if (number == __NR_SCMP_ERROR) return true;
  return ::seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, number, static_cast<unsigned>(conditions.size()),
                                  conditions.data()) == 0;
}

bool build_network(void* filter) {
  for (const char* name : kNetworkCalls)
    if (!allow(filter, name)) return false;
  // No memory that can be executed.
  for (const char* name : kCallsWithProtection)
    if (!allow(filter, name, {masked_equals(2, PROT_EXEC, 0)})) return false;
  for (const int command : kFcntlCommands)
    if (!allow(filter, "fcntl", {equals(1, command)})) return false;
  // Only where its socket is connected to. sendmsg() hides the address from a filter.
  if (!allow(filter, "sendto", {equals(4, 0)})) return false;
  // abort() signals the process itself.
  if (!allow(filter, "tgkill", {equals(0, ::getpid())})) return false;
  // For the streams of private networks: both ends are the process's own, and no name leads to them.
  if (!allow(filter, "socketpair", {equals(0, AF_UNIX), masked_equals(1, 0xf, SOCK_STREAM), equals(2, 0)}))
    return false;
  constexpr long kType = 0xf;  // SOCK_TYPE_MASK of linux/net.h; flags are above it
  for (const int family : {AF_INET, AF_INET6})
    for (const int type : {SOCK_STREAM, SOCK_DGRAM})
      if (!allow(filter, "socket", {equals(0, family), masked_equals(1, kType, type), equals(2, 0)}))
        return false;
  return true;
}

bool build(void* filter, const Confinement& confinement) {
  if (!deny(filter, kDenied, EPERM)) return false;
  for (const int number : kDeniedNumbers)
    if (::seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 0) != 0) return false;
  if (!confinement.allow_sockets && !deny(filter, kSockets, EACCES)) return false;
  if (!confinement.allow_sockets && !confinement.allow_unix_accept &&
      !deny(filter, std::array{"accept", "accept4"}, EACCES))
    return false;
  if (!confinement.allow_exec && !deny(filter, kExec, EPERM)) return false;
  return deny_clone(filter, confinement.allow_exec);
}

}  // namespace

void apply_seccomp(const Confinement& confinement, Missing& missing) {
  const bool only_network = confinement.only_network;
  const Filter filter(::seccomp_init(only_network ? SCMP_ACT_ERRNO(EPERM) : SCMP_ACT_ALLOW));
  if (filter && ::seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) == 0) {
    // A balanced tree instead of a chain of comparisons: every system call of the helper goes through it.
    ::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (only_network ? build_network(filter.get()) : build(filter.get(), confinement)) {
      const int rc = ::seccomp_load(filter.get());
      if (rc == 0) return;
      missing.push_back(std::string("seccomp filter (") + std::strerror(-rc) + ")");
      return;
    }
  }
  missing.push_back("seccomp filter (it could not be built)");
}

}  // namespace drupe::confine_steps
