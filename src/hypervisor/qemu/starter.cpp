#include "hypervisor/qemu/starter.h"

#include <array>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <linux/sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hypervisor/qemu/launch.h"
#include "hypervisor/qemu/starter_message.h"

namespace drupe {
namespace {

Status send_message(int socket, const FdMessage& message) {
  std::vector<int> fds;
  for (const UniqueFd& fd : message.fds) fds.push_back(fd.get());
  DRUPE_TRY(send_with_fds(socket, message.bytes, fds));
  return {};
}

Result<QemuParts> start_program(const HelperProgram& helper, const FdMessage& message,
                                std::vector<pid_t>& failed) {
  if (message.fds.size() != 2) return fail(ErrorCode::kIntegrity, "A helper takes two descriptors");
  // Made here, because a shim that has locked itself down makes no sockets.
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fail_sys("Creating a socket pair failed", errno);
  QemuParts parts;
  parts.control = UniqueFd(ends[0]);
  const UniqueFd other(ends[1]);
  if (::fcntl(parts.control.get(), F_SETFL, O_NONBLOCK) != 0)
    return fail_sys("Setting up a socket failed", errno);
  SpawnRequest request;
  request.program = helper.path;
  request.argv = {helper.path.substr(helper.path.rfind('/') + 1)};
  request.env = {"LC_ALL=C"};
  request.fds = {{message.fds[0].get(), STDERR_FILENO}, {other.get(), 3}, {message.fds[1].get(), 4}};
  request.die_with_parent = true;
  request.failed_siblings = &failed;
  DRUPE_ASSIGN(auto confined, spawn_confined(request, helper.confinement));
  parts.child = std::move(confined.child);
  parts.confinement_missing = std::move(confined.missing);
  return parts;
}

Result<QemuParts> run(const HelperProgram& helper, std::string_view request) {
  if (!helper.errand) return fail(ErrorCode::kUnsupported, "There is no errand");
  DRUPE_ASSIGN(UniqueFd fd, helper.errand(request));
  QemuParts parts;
  parts.control = std::move(fd);
  return parts;
}

StartAnswer start(const QemuOptions& options, const HelperProgram& helper, FdMessage message) {
  StartAnswer answer;
  if (is_helper_request(message)) {
    answer.parts = start_program(helper, message, answer.failed);
    return answer;
  }
  if (const auto request = errand_of(message)) {
    answer.parts = run(helper, *request);
    return answer;
  }
  auto spec = decode_start(std::move(message));
  if (spec)
    answer.parts = launch_parts(options, std::move(*spec), LaunchStage::kPrepare, &answer.failed);
  else
    answer.parts = std::unexpected(std::move(spec).error());
  return answer;
}

[[noreturn]] void serve(const QemuOptions& options, const HelperProgram& helper, int socket, pid_t parent) {
  ::prctl(PR_SET_NAME, "drupe-starter", 0, 0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || ::getppid() != parent) ::_exit(1);
  // The sandbox's files and its lock are none of its business.
  if (socket > 3) ::close_range(3, static_cast<unsigned>(socket - 1), 0);
  ::close_range(static_cast<unsigned>(socket + 1), ~0U, 0);
  while (true) {
    auto message = receive_with_fds(socket, kMaxStarterMessage);
    if (!message || message->bytes.empty()) ::_exit(0);
    if (!send_message(socket, encode_answer(start(options, helper, std::move(*message))))) ::_exit(1);
  }
}

}  // namespace

Result<std::unique_ptr<Starter>> Starter::create(const QemuOptions& options, const HelperProgram& helper) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fail_sys("Creating a socket pair failed", errno);
  UniqueFd own(ends[0]);
  const UniqueFd other(ends[1]);
  const pid_t parent = ::getpid();
  int pidfd = -1;
  const auto pid =
      static_cast<pid_t>(::syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, nullptr, &pidfd, nullptr, nullptr));
  if (pid < 0) return fail_sys("Creating a process failed", errno);
  if (pid == 0) serve(options, helper, other.get(), parent);
  return std::unique_ptr<Starter>(new Starter(ChildProcess{pid, UniqueFd(pidfd)}, std::move(own)));
}

Starter::~Starter() {
  socket_.reset();
  [[maybe_unused]] const auto ended = wait_for(child_);
}

Result<std::optional<StartAnswer>> Starter::next_answer(EventLoop& loop, Deadline deadline) {
  bool readable = false;
  DRUPE_TRY(loop.watch(socket_.get(), EPOLLIN, [&readable](std::uint32_t) { readable = true; }));
  const auto came = loop.run_until([&readable] { return readable; }, deadline);
  loop.unwatch(socket_.get());
  if (!came) return std::unexpected(came.error());
  if (!*came) return std::optional<StartAnswer>();
  DRUPE_ASSIGN(FdMessage message, receive_with_fds(socket_.get(), kMaxStarterMessage));
  if (message.bytes.empty())
    return fail(ErrorCode::kHost, "The process that starts hypervisors for this sandbox has ended");
  DRUPE_ASSIGN(StartAnswer answer, decode_answer(std::move(message)));
  for (const pid_t pid : answer.failed) ::waitpid(pid, nullptr, 0);
  return std::optional<StartAnswer>(std::move(answer));
}

Result<QemuParts> Starter::launch(EventLoop& loop, LaunchSpec spec, Deadline deadline) {
  return ask(loop, encode_start(std::move(spec)), deadline);
}

Result<StartedHelper> Starter::start_helper(EventLoop& loop, UniqueFd log, UniqueFd fd, Deadline deadline) {
  DRUPE_ASSIGN(QemuParts parts, ask(loop, helper_request(std::move(log), std::move(fd)), deadline));
  return StartedHelper{std::move(parts.child), std::move(parts.confinement_missing),
                       std::move(parts.control)};
}

Result<UniqueFd> Starter::run_errand(EventLoop& loop, std::string_view request, Deadline deadline) {
  DRUPE_ASSIGN(QemuParts parts, ask(loop, errand_request(request), deadline));
  return std::move(parts.control);
}

Result<QemuParts> Starter::ask(EventLoop& loop, const FdMessage& request, Deadline deadline) {
  constexpr const char* kTooLong = "Starting a process of the sandbox took too long";
  while (late_ > 0) {
    DRUPE_ASSIGN(auto old, next_answer(loop, deadline));
    if (!old) return fail(ErrorCode::kTimeout, kTooLong);
    --late_;
    // An errand's descriptor has no process.
    if (!old->parts || old->parts->child.pid <= 0) continue;
    ::kill(old->parts->child.pid, SIGKILL);
    [[maybe_unused]] const auto ended = wait_for(old->parts->child);
  }
  DRUPE_TRY(send_message(socket_.get(), request));
  DRUPE_ASSIGN(auto answer, next_answer(loop, deadline));
  if (!answer) {
    ++late_;
    return fail(ErrorCode::kTimeout, kTooLong);
  }
  return std::move(answer->parts);
}

}  // namespace drupe
