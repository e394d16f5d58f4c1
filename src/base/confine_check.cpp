// Run confined by confine_test.cpp: tries what it is told to and prints the errno of each attempt, one a line
// ("ptrace 1"; 0: it worked).
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <netinet/in.h>

namespace {

int result(long rc) {
  return rc < 0 ? errno : 0;
}

long try_clone(unsigned long flags) {
  const long pid = ::syscall(SYS_clone, flags | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (pid == 0) ::_exit(0);
  return pid;
}

// To a port of loopback that the environment names.
int try_connect() {
  const char* port = std::getenv("DRUPE_CHECK_PORT");
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port == nullptr ? 0 : std::atoi(port)));
  return result(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address));
}

int try_exec(const char* path) {
  int status = 0;
  const pid_t pid = ::fork();
  if (pid < 0) return errno;
  if (pid == 0) {
    ::execl(path, path, nullptr);
    ::_exit(errno);
  }
  ::waitpid(pid, &status, 0);
  return WEXITSTATUS(status);
}

long capabilities() {
  struct {
    unsigned version;
    int pid;
  } header{0x20080522, 0};
  unsigned data[6]{};
  ::syscall(SYS_capget, &header, data);
  return static_cast<long>(data[0] | data[1] | data[2] | data[3] | data[4] | data[5]);
}

int highest_open_fd() {
  int highest = -1;
  for (int fd = 0; fd < 1024; ++fd)
    if (::fcntl(fd, F_GETFD) >= 0) highest = fd;
  return highest;
}

const std::map<std::string, std::function<long()>> kAttempts{
    {"ptrace", [] { return result(::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }},
    {"process_vm_readv", [] { return result(::process_vm_readv(::getppid(), nullptr, 0, nullptr, 0, 0)); }},
    {"pidfd_getfd", [] { return result(::syscall(SYS_pidfd_getfd, 0, 0, 0)); }},
    {"socket", [] { return result(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }},
    {"inet", [] { return result(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }},
    {"connect_port", [] { return static_cast<long>(try_connect()); }},
    {"keyctl", [] { return result(::syscall(SYS_keyctl, 0, 0, 0, 0, 0)); }},
    {"bpf", [] { return result(::syscall(SYS_bpf, 0, nullptr, 0)); }},
    {"userfaultfd", [] { return result(::syscall(SYS_userfaultfd, 0)); }},
    {"io_uring", [] { return result(::syscall(SYS_io_uring_setup, 1, nullptr)); }},
    {"mount", [] { return result(::mount("x", "/", "tmpfs", 0, nullptr)); }},
    {"unshare", [] { return result(::unshare(CLONE_NEWUSER)); }},
    {"clone_newuser", [] { return result(try_clone(CLONE_NEWUSER)); }},
    {"fchmod", [] { return result(::fchmod(STDOUT_FILENO, 0600)); }},
    {"fchown", [] { return result(::fchown(STDOUT_FILENO, ::getuid(), ::getgid())); }},
    {"futimens", [] { return result(::futimens(STDOUT_FILENO, nullptr)); }},
    {"fchmodat2", [] { return result(::syscall(452, STDOUT_FILENO, "", 0600, AT_EMPTY_PATH)); }},
    {"setxattrat", [] { return result(::syscall(463, STDOUT_FILENO, "", 0, "user.x", nullptr, 0)); }},
    {"file_setattr", [] { return result(::syscall(469, STDOUT_FILENO, "", nullptr, 0, 0)); }},
    {"clone3", [] { return result(::syscall(SYS_clone3, nullptr, 0)); }},
    {"fork", [] { return result(try_clone(0)); }},
    {"read_etc", [] { return result(::open("/etc/passwd", O_RDONLY | O_CLOEXEC)); }},
    {"read_tmp", [] { return result(::open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }},
    {"read_proc", [] { return result(::open("/proc/1/status", O_RDONLY | O_CLOEXEC)); }},
    {"read_usr", [] { return result(::open("/usr/bin", O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }},
    {"write_usr", [] { return result(::open("/usr/drupe-test", O_WRONLY | O_CREAT | O_CLOEXEC, 0600)); }},
    {"write_root", [] { return result(::open("/drupe-test", O_WRONLY | O_CREAT | O_CLOEXEC, 0600)); }},
    {"exec_true", [] { return try_exec("/usr/bin/true"); }},
    {"core_limit",
     [] {
       rlimit limit{};
       ::getrlimit(RLIMIT_CORE, &limit);
       return static_cast<long>(limit.rlim_max);
     }},
    {"file_limit",
     [] {
       rlimit limit{};
       ::getrlimit(RLIMIT_NOFILE, &limit);
       return static_cast<long>(limit.rlim_max);
     }},
    {"capabilities", capabilities},
    {"no_new_privs", [] { return ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); }},
    {"uid", [] { return static_cast<long>(::getuid()); }},
    {"pid", [] { return static_cast<long>(::getpid()); }},
    {"death_signal",
     [] {
       int number = 0;
       ::prctl(PR_GET_PDEATHSIG, &number);
       return static_cast<long>(number);
     }},
    {"highest_fd", [] { return static_cast<long>(highest_open_fd()); }},
    {"wait_for_end", [] { return static_cast<long>(::pause()); }},
};

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const auto found = kAttempts.find(argv[i]);
    if (found == kAttempts.end()) return 2;
    std::printf("%s %ld\n", argv[i], static_cast<long>(found->second()));
    std::fflush(stdout);
  }
  return 0;
}
