#include "agent/sys.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>

#include <fcntl.h>
#include <linux/sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace drupe::agent {
namespace {

constexpr std::size_t kMaxKernelFile = 1024 * 1024;
constexpr int kIdPidfd = 3;  // P_PIDFD

std::uint64_t nanoseconds(const timeval& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_usec) * 1000;
}

}  // namespace

pid_t clone_process(std::uint64_t flags, int cgroup, UniqueFd* pidfd) {
  int raw = -1;
  clone_args args{};
  args.flags = flags | CLONE_PIDFD;
  args.pidfd = reinterpret_cast<std::uint64_t>(&raw);
  args.exit_signal = SIGCHLD;
  if (cgroup >= 0) {
    args.flags |= CLONE_INTO_CGROUP;
    args.cgroup = static_cast<std::uint64_t>(cgroup);
  }
  const long pid = ::syscall(SYS_clone3, &args, sizeof args);
  if (pid > 0 && pidfd != nullptr) *pidfd = UniqueFd(raw);
  return static_cast<pid_t>(pid);
}

Ended reap(int pidfd) {
  siginfo_t info{};
  rusage usage{};
  Ended ended;
  long done = 0;
  do done = ::syscall(SYS_waitid, kIdPidfd, pidfd, &info, WEXITED, &usage);
  while (done < 0 && errno == EINTR);
  if (done < 0) {
    ended.signal = SIGKILL;
    return ended;
  }
  if (info.si_code == CLD_EXITED)
    ended.exit_code = info.si_status;
  else
    ended.signal = info.si_status;
  ended.cpu_ns = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
  return ended;
}

void send_signal(int pidfd, int signal) {
  ::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0);
}

void say(std::string_view text) {
  std::string line = "drupe-init: ";
  line.append(text);
  line += '\n';
  // A console that cannot be written has nowhere else to go.
  [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, line.data(), line.size());
}

std::string slurp(DirFd dir, const std::string& path) {
  auto bytes = read_file(dir, path, kMaxKernelFile);
  return bytes ? *std::move(bytes) : std::string();
}

Status put(DirFd dir, const std::string& path, std::string_view text) {
  DRUPE_ASSIGN(const UniqueFd fd, open_at(dir, path, O_WRONLY));
  if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return fail_sys("Writing " + path + " failed", errno);
  return {};
}

std::string reread(int fd) {
  std::array<char, 4096> text;
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  return got > 0 ? std::string(text.data(), static_cast<std::size_t>(got)) : std::string();
}

bool is_mount_point(DirFd dir, const std::string& path) {
  struct statx info{};
  return ::statx(dir, path.c_str(), AT_SYMLINK_NOFOLLOW, 0, &info) == 0 &&
         (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

std::uint64_t parse_number(std::string_view digits, std::uint64_t fallback) {
  std::uint64_t value = 0;
  if (digits.empty()) return fallback;
  for (const char c : digits) {
    if (c < '0' || c > '9' || __builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, static_cast<std::uint64_t>(c - '0'), &value))
      return fallback;
  }
  return value;
}

std::uint64_t value_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() == text.size() ? line.size() : line.size() + 1);
    if (line.size() <= key.size() || !line.starts_with(key)) continue;
    std::string_view rest = line.substr(key.size());
    if (rest[0] != ' ' && rest[0] != ':') continue;
    while (!rest.empty() && (rest[0] == ' ' || rest[0] == ':' || rest[0] == '\t')) rest.remove_prefix(1);
    return parse_number(rest.substr(0, rest.find(' ')), 0);
  }
  return 0;
}

std::uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_sys("Creating a pipe failed", errno);
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Status set_nonblocking(int fd) {
  if (::fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
    return fail_sys("Making a descriptor non-blocking failed", errno);
  return {};
}

}  // namespace drupe::agent
