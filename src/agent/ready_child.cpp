#include "agent/ready_child.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/caps.h"
#include "agent/ends.h"
#include "agent/order.h"

namespace drupe::agent {
namespace {

constexpr std::chrono::seconds kLater{1};
constexpr std::chrono::seconds kSettle{1};

// The child's descriptors above its status pipe, which is 3.
constexpr int kOrders = 4;
constexpr int kNull = 5;
constexpr int kPrepared = 6;

int copy_high(int fd) {
  return ::fcntl(fd, F_DUPFD_CLOEXEC, 16);
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
  if (!read_exact(kOrders, reinterpret_cast<char*>(&size), sizeof size) || size > kMaxOrder)
    return fail(ErrorCode::kCancelled, "There is no order");
  std::string bytes(size, '\0');
  if (!read_exact(kOrders, bytes.data(), bytes.size()))
    return fail(ErrorCode::kCancelled, "The order is not whole");
  return Order::decode(as_bytes(bytes));
}

/// Everything up to the point where the command matters. The numbers are those of the agent's table.
Status get_ready(const Work& work, const ChildFds& fds, int orders, int prepared) {
  reset_process();
  // The agent's, as for any command: the user may have replaced the sandbox's.
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const std::array<std::pair<int, int>, 3> moves{
      {{copy_high(orders), kOrders}, {copy_high(null), kNull}, {copy_high(prepared), kPrepared}}};
  arrange_descriptors(fds);
  DRUPE_TRY(work.enter());
  for (const auto& [from, to] : moves) ::dup3(from, to, O_CLOEXEC);
  ::close_range(kPrepared + 1, ~0U, 0);
  // ps then shows its name instead of the agent's command line.
  ::prctl(PR_SET_MM, PR_SET_MM_ARG_END, reinterpret_cast<unsigned long>(program_invocation_name), 0, 0);
  ::prctl(PR_SET_NAME, "drupe-ready");
  drop_own_capabilities();  // user work may trace this process
  ::close(kPrepared);
  return {};
}

[[noreturn]] void wait_for_order(const Work& work, const ChildFds& fds, int orders, int prepared) {
  if (!get_ready(work, fds, orders, prepared)) ::_exit(1);
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

Status ReadyChild::start() {
  DRUPE_ASSIGN(Ends ends, make_pipe_ends(StdinPipe::kYes));
  DRUPE_ASSIGN(Pipe orders, make_pipe());
  DRUPE_TRY(set_nonblocking(orders.write.get()));
  DRUPE_ASSIGN(Pipe prepared, make_pipe());
  DRUPE_ASSIGN(ends.ours.cgroup, cgroups_.acquire());
  const pid_t pid = work_.clone(ChildNamespace::kWork, ends.ours.cgroup->dir.get(), &ends.ours.pidfd);
  if (pid == 0) wait_for_order(work_, ends.child(), orders.read.get(), prepared.write.get());
  if (pid < 0) {
    const int err = errno;
    cgroups_.release(std::move(ends.ours.cgroup));
    return fail_sys("Starting a process in the guest failed", err);
  }
  process_ = std::move(ends.ours);
  orders_ = std::move(orders.write);
  prepared_ = std::move(prepared.read);
  prepared.write.reset();
  DRUPE_TRY(loop_.watch(process_.pidfd.get(), EPOLLIN, [this](std::uint32_t) { on_end(); }));
  return loop_.watch(prepared_.get(), EPOLLIN, [this](std::uint32_t) { on_prepared(); });
}

void ReadyChild::on_prepared() {
  loop_.unwatch(prepared_.get());
  prepared_.reset();
  settle();
}

void ReadyChild::on_end() {
  loop_.unwatch(process_.pidfd.get());
  reap(process_.pidfd.get());
  cgroups_.release(std::move(process_.cgroup));
  process_ = Job::Process();
  orders_.reset();
  on_prepared();
  prepare_later();
}

void ReadyChild::when_settled(std::function<void()> call) {
  if (!prepared_.valid()) return call();
  waiting_.push_back(std::move(call));
  if (settle_timer_ != 0) return;
  settle_timer_ = loop_.after(kSettle, [this] {
    settle_timer_ = 0;
    settle();
  });
}

void ReadyChild::settle() {
  cancel(settle_timer_);
  for (const auto& call : std::exchange(waiting_, {})) call();
}

std::optional<ReadyChild::Used> ReadyChild::use(const ExecOptions& options, const Defaults& defaults) {
  if (!orders_.valid() || options.tty || !options.limits.empty()) return std::nullopt;
  std::string order = Order::encode(options, defaults);
  if (order.size() > kMaxOrder) return std::nullopt;
  if (::write(orders_.get(), order.data(), order.size()) != static_cast<ssize_t>(order.size())) {
    // It has just died, or a process of the guest's has filled its pipe: on_end() is about to come.
    orders_.reset();
    send_signal(process_.pidfd.get(), SIGKILL);
    return std::nullopt;
  }
  loop_.unwatch(process_.pidfd.get());
  // The cgroup's count of memory kills is that of its making: the child was alone there and lives.
  Used used{std::exchange(process_, Job::Process()), std::move(order)};
  if (!options.stdin_open) used.process.in.reset();
  orders_.reset();
  on_prepared();
  prepare_later();
  return used;
}

}  // namespace drupe::agent
