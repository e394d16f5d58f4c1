#include "base/spawn.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

namespace drupe {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (const auto& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

class FileActions {
 public:
  FileActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  // Sources are first copied above every target, so that no dup2 overwrites a source that is still needed.
  Status map(const SpawnRequest& request) {
    int highest = 2;
    for (const auto& fd : request.fds) highest = std::max(highest, fd.to);
    int rc = 0;
    for (int fd = 0; fd <= 2 && rc == 0; ++fd)
      rc = ::posix_spawn_file_actions_addopen(&actions_, fd, "/dev/null", O_RDWR, 0);
    for (const auto& fd : request.fds) {
      UniqueFd high(::fcntl(fd.from, F_DUPFD_CLOEXEC, highest + 1));
      if (!high.valid()) return fail_sys("Copying a descriptor for a new process failed", errno);
      if (rc == 0) rc = ::posix_spawn_file_actions_adddup2(&actions_, high.get(), fd.to);
      copies_.push_back(std::move(high));
    }
    for (int fd = 3; fd < highest && rc == 0; ++fd) {
      const auto mapped = [fd](const FdMapping& one) { return one.to == fd; };
      if (std::ranges::any_of(request.fds, mapped)) continue;
      rc = ::posix_spawn_file_actions_addclose(&actions_, fd);
    }
    if (rc == 0) rc = ::posix_spawn_file_actions_addclosefrom_np(&actions_, highest + 1);
    if (rc == 0 && !request.cwd.empty())
      rc = ::posix_spawn_file_actions_addchdir_np(&actions_, request.cwd.c_str());
    if (rc != 0) return fail_errno(ErrorCode::kHost, "Preparing a new process failed", rc);
    return {};
  }
  [[nodiscard]] const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
  std::vector<UniqueFd> copies_;
};

}  // namespace

Result<ChildProcess> spawn(const SpawnRequest& request) {
  FileActions actions;
  DRUPE_TRY(actions.map(request));
  posix_spawnattr_t attr;
  ::posix_spawnattr_init(&attr);
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attr, &none);
  ::posix_spawnattr_setsigdefault(&attr, &all);
  auto flags = static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  if (request.new_session) flags = static_cast<short>(flags | POSIX_SPAWN_SETSID);
  ::posix_spawnattr_setflags(&attr, flags);
  const auto argv = pointers(request.argv);
  const auto env = pointers(request.env);
  ChildProcess child;
  const int rc =
      ::posix_spawn(&child.pid, request.program.c_str(), actions.get(), &attr, argv.data(), env.data());
  ::posix_spawnattr_destroy(&attr);
  if (rc != 0) return fail_sys("Starting " + request.program + " failed", rc);
  // Not reaped yet, so the number is still this child's, unless the program has chosen to ignore SIGCHLD.
  child.pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  if (!child.pidfd.valid()) {
    const int err = errno;
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
    return fail_sys("Opening the pidfd of " + request.program + " failed", err);
  }
  return child;
}

Result<std::optional<int>> try_wait(const ChildProcess& child) {
  int status = 0;
  const pid_t got = ::waitpid(child.pid, &status, WNOHANG);
  if (got < 0) return fail_sys("Waiting for a process failed", errno);
  if (got == 0) return std::nullopt;
  return status;
}

Result<int> wait_for(const ChildProcess& child) {
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0) {
    if (errno != EINTR) return fail_sys("Waiting for a process failed", errno);
  }
  return status;
}

void kill_child(const ChildProcess& child) {
  signal_child(child, SIGKILL);
}

void signal_child(const ChildProcess& child, int number) {
  if (child.pidfd.valid()) ::syscall(SYS_pidfd_send_signal, child.pidfd.get(), number, nullptr, 0);
}

std::string describe_wait_status(int status) {
  if (WIFEXITED(status)) return "exit status " + std::to_string(WEXITSTATUS(status));
  if (WIFSIGNALED(status))
    return "killed by signal " + std::to_string(WTERMSIG(status)) + " (" + ::strsignal(WTERMSIG(status)) +
           ")";
  return "wait status " + std::to_string(status);
}

}  // namespace drupe
