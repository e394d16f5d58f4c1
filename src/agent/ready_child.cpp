#include "agent/ready_child.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/caps.h"
#include "agent/ends.h"
#include "agent/order.h"

namespace drupe::agent {
namespace {

constexpr std::chrono::seconds kLater{1};
constexpr std::chrono::seconds kSettle{1};

// The child's descriptors above its status pipe, which is 3. Its order comes through its stdin.
constexpr int kNull = 4;
constexpr int kPrepared = 5;

/// Gives a descriptor a number that the child has no other use for.
void raise(UniqueFd& fd) {
  if (fd.valid() && fd.get() <= kPrepared) fd = UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kPrepared + 1));
}

bool read_exact(int fd, char* to, std::size_t size) {
  while (size > 0) {
    const ssize_t got = ::read(fd, to, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

Result<Order> read_order() {
  std::uint32_t size = 0;
  if (!read_exact(STDIN_FILENO, reinterpret_cast<char*>(&size), sizeof size) || size > kMaxOrder)
    return fail(ErrorCode::kCancelled, "There is no order");
  std::string bytes(size, '\0');
  if (!read_exact(STDIN_FILENO, bytes.data(), bytes.size()))
    return fail(ErrorCode::kCancelled, "The order is not whole");
  return Order::decode(as_bytes(bytes));
}

/// The child's end of everything, as numbers of the agent's table; none is one that the child uses.
struct Given {
  ChildFds fds;
  int null, prepared;
};

/// Everything up to the point where the command matters.
Status get_ready(const Work& work, const Given& given) {
  reset_process();
  const std::array<std::pair<int, int>, 6> places{{{given.fds.in, STDIN_FILENO},
                                                   {given.fds.out, STDOUT_FILENO},
                                                   {given.fds.err, STDERR_FILENO},
                                                   {given.fds.status, STDERR_FILENO + 1},
                                                   {given.null, kNull},
                                                   {given.prepared, kPrepared}}};
  DRUPE_TRY(work.enter());
  for (const auto& [from, to] : places) ::dup3(from, to, to > STDERR_FILENO ? O_CLOEXEC : 0);
  ::close_range(kPrepared + 1, ~0U, 0);
  // ps then shows its name instead of the agent's command line.
  ::prctl(PR_SET_MM, PR_SET_MM_ARG_END, reinterpret_cast<unsigned long>(program_invocation_name), 0, 0);
  ::prctl(PR_SET_NAME, "drupe-ready");
  drop_own_capabilities();  // user work may trace this process
  constexpr std::uint64_t kOne = 1;
  [[maybe_unused]] const ssize_t told = ::write(kPrepared, &kOne, sizeof kOne);
  ::close(kPrepared);
  return {};
}

[[noreturn]] void wait_for_order(const Work& work, const Given& given) {
  if (!get_ready(work, given)) ::_exit(1);
  const auto order = read_order();
  if (!order) ::_exit(1);
  if (!order->options.stdin_open) ::dup2(kNull, STDIN_FILENO);
  // What was mounted over the root meanwhile is the root of a command that enters only now; `..` at a root
  // leads to what covers it.
  if (::chdir("/..") != 0 || ::chroot(".") != 0) ::_exit(1);
  run_command(order->options, order->defaults, STDERR_FILENO + 1);
}

}  // namespace

ReadyChild::ReadyChild(EventLoop& loop, Work& work, Cgroups& cgroups, std::function<bool()> may_start)
    : loop_(loop), work_(work), cgroups_(cgroups), may_start_(std::move(may_start)) {}

ReadyChild::~ReadyChild() {
  cancel(start_timer_);
  cancel(settle_timer_);
  loop_.unwatch(prepared_.get());
  loop_.unwatch(process_.pidfd.get());
}

void ReadyChild::cancel(EventLoop::TimerId& timer) {
  if (timer != 0) loop_.cancel(std::exchange(timer, 0));
}

void ReadyChild::prepare() {
  if (process_.pidfd.valid() || !may_start_()) return;
  cancel(start_timer_);
  // Commands start the ordinary way where this fails, and report why when that does too.
  [[maybe_unused]] const auto started = start();
}

void ReadyChild::prepare_later() {
  if (process_.pidfd.valid()) return;
  cancel(start_timer_);
  start_timer_ = loop_.after(kLater, [this] {
    start_timer_ = 0;
    prepare();
  });
}

Status ReadyChild::open_once() {
  if (prepared_.valid()) return {};
  UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  UniqueFd prepared(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!null.valid() || !prepared.valid()) return fail_sys("Opening what a ready child needs failed", errno);
  raise(null);
  raise(prepared);
  DRUPE_TRY(loop_.watch(prepared.get(), EPOLLIN, [this](std::uint32_t) { on_prepared(); }));
  null_ = std::move(null);
  prepared_ = std::move(prepared);
  return {};
}

Status ReadyChild::start() {
  DRUPE_TRY(open_once());
  DRUPE_ASSIGN(Ends ends, make_pipe_ends(StdinPipe::kYes));
  for (UniqueFd& end : ends.theirs) raise(end);
  DRUPE_ASSIGN(ends.ours.cgroup, cgroups_.acquire());
  const pid_t pid = work_.clone(ChildNamespace::kWork, ends.ours.cgroup->dir.get(), &ends.ours.pidfd);
  if (pid == 0) wait_for_order(work_, {ends.child(), null_.get(), prepared_.get()});
  if (pid < 0) {
    const int err = errno;
    cgroups_.release(std::move(ends.ours.cgroup));
    return fail_sys("Starting a process in the guest failed", err);
  }
  process_ = std::move(ends.ours);
  usable_ = settling_ = true;
  return loop_.watch(process_.pidfd.get(), EPOLLIN, [this](std::uint32_t) { on_end(); });
}

/// A process of the guest's that has got hold of the descriptor can only say so too early.
void ReadyChild::on_prepared() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(prepared_.get(), &count, sizeof count);
  settle();
}

void ReadyChild::on_end() {
  loop_.unwatch(process_.pidfd.get());
  reap(process_.pidfd.get());
  cgroups_.release(std::move(process_.cgroup));
  process_ = Job::Process();
  usable_ = false;
  settle();
  prepare_later();
}

void ReadyChild::when_settled(std::function<void()> call) {
  if (!settling_) return call();
  waiting_.push_back(std::move(call));
  if (settle_timer_ != 0) return;
  settle_timer_ = loop_.after(kSettle, [this] {
    settle_timer_ = 0;
    settle();
  });
}

void ReadyChild::settle() {
  settling_ = false;
  cancel(settle_timer_);
  for (const auto& call : std::exchange(waiting_, {})) call();
}

std::optional<ReadyChild::Used> ReadyChild::use(const ExecOptions& options, const Defaults& defaults) {
  if (!usable_ || options.tty || !options.limits.empty()) return std::nullopt;
  std::string order = Order::encode(options, defaults);
  if (order.size() > kMaxOrder) return std::nullopt;
  usable_ = false;
  if (::write(process_.in.get(), order.data(), order.size()) != static_cast<ssize_t>(order.size())) {
    // It has just died, or a process of the guest's has filled its pipe: on_end() is about to come.
    send_signal(process_.pidfd.get(), SIGKILL);
    return std::nullopt;
  }
  loop_.unwatch(process_.pidfd.get());
  // The cgroup's count of memory kills is that of its making: the child was alone there and lives.
  Used used{std::exchange(process_, Job::Process()), std::move(order)};
  if (!options.stdin_open) used.process.in.reset();
  settle();
  prepare_later();
  return used;
}

}  // namespace drupe::agent
