#include "agent/job.h"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/launch.h"
#include "agent/sys.h"

namespace drupe::agent {
namespace {

constexpr int kReadsPerTurn = 4;
// Room for four frames between two turns of the agent.
constexpr int kWidePipe = 256 * 1024;
constexpr std::size_t kDetachedRead = 16 * 1024;
constexpr std::size_t kMaxStatus = 128 * 1024;
// What a terminal may still hold when its leader exits; a background process that goes on writing does not
// prolong the drain.
constexpr std::size_t kTerminalDrain = 256 * 1024;
constexpr std::uint64_t kLongestTimeoutMs = 10ULL * 365 * 86400 * 1000;
constexpr std::chrono::seconds kNudge{1};
constexpr std::chrono::seconds kTreeWait{30};
constexpr char kEndOfTransmission = 4;

}  // namespace

Job::Job(JobHost& host, std::string exec_id, Process process)
    : host_(host),
      exec_id_(std::move(exec_id)),
      is_task_(process.cgroup == nullptr),
      started_ns_(monotonic_ns()) {
  adopt(std::move(process));
}

void Job::adopt(Process process) {
  process_ = std::move(process);
  outputs_[0].fd = std::move(process_.out);
  outputs_[0].channel = Channel::kStdout;
  outputs_[1].fd = std::move(process_.err);
  outputs_[1].channel = Channel::kStderr;
  for (auto& output : outputs_) output.ended = output.drained = !output.fd.valid();
  input_.fd = std::move(process_.in);
}

Job::~Job() {
  if (timer_ != 0) host_.loop().cancel(timer_);
  if (end_timer_ != 0) host_.loop().cancel(end_timer_);
  if (tree_timer_ != 0) host_.loop().unwatch(process_.cgroup->events.get());
  if (tree_timer_ != 0) host_.loop().cancel(tree_timer_);
  if (nudge_timer_ != 0) host_.loop().cancel(nudge_timer_);
  for (auto& output : outputs_) host_.loop().unwatch(output.fd.get());
  host_.loop().unwatch(input_.fd.get());
  host_.loop().unwatch(process_.status.get());
  host_.loop().unwatch(process_.pidfd.get());
}

void Job::start() {
  if (process_.timeout_ms != 0) {
    const auto ms = static_cast<std::int64_t>(std::min(process_.timeout_ms, kLongestTimeoutMs));
    timer_ = host_.loop().after(std::chrono::milliseconds(ms), [this] { time_out(); });
  }
  if (process_.again) {
    // The user may have stopped the child while it waited, which is no reason for the command to wait.
    nudge_timer_ = host_.loop().after(kNudge, [this] {
      nudge_timer_ = 0;
      send_signal(process_.pidfd.get(), SIGCONT);
    });
  }
  if (is_task_) {
    started_ = true;
    announce();
  }
  resume();
}

void Job::pause() {
  auto& loop = host_.loop();
  for (auto& output : outputs_) {
    loop.unwatch(output.fd.get());
    output.watched = false;
  }
  loop.unwatch(input_.fd.get());
  input_.watched = false;
  loop.unwatch(process_.status.get());
  loop.unwatch(process_.pidfd.get());
}

void Job::resume() {
  // A watch can fail only for want of kernel memory; the job then hangs until it is killed, which is what
  // such a guest gets.
  if (!status_closed_) {
    [[maybe_unused]] const auto ok =
        host_.loop().watch(process_.status.get(), EPOLLIN, [this](std::uint32_t) { on_status(); });
  }
  if (!ended_) {
    [[maybe_unused]] const auto ok =
        host_.loop().watch(process_.pidfd.get(), EPOLLIN, [this](std::uint32_t) { process_ended(); });
  }
  if (std::exchange(timeout_missed_, false)) time_out();
  write_input();
  pump();
}

void Job::attach(std::uint32_t stream) {
  stream_ = stream;
  for (auto& output : outputs_) output.credit = CreditSender();
  input_.credit = CreditReceiver();
  input_.queue.clear();
  input_.begin = 0;
  if (started_) announce();
  if (finished_) {
    // Only the ring is left to send.
    pump();
    return;
  }
  if (started_) pump();
}

void Job::announce() {
  if (stream_ == 0) return;
  host_.bulk().send(FrameType::kOpened, Channel::kStdin, stream_, OpenedReply{pid_}.encode());
}

void Job::detach() {
  stream_ = 0;
  input_.queue.clear();
  input_.begin = 0;
  for (auto& output : outputs_) {
    if (output.pending.size() > kRingSize) output.pending.erase(0, output.pending.size() - kRingSize);
  }
  if (!finished_ && !quiet()) pump();
}

void Job::reset_by_host() {
  detach();
  if (is_task_ || !process_.keep_on_reset) signal(SIGKILL, true);
}

void Job::signal(int number, bool tree) {
  // Whatever it does to a child that has not begun is this command's end.
  if (process_.again) order_taken();
  if (tree && number == SIGKILL && process_.cgroup) {
    tree_killed_ = true;
    return process_.cgroup->kill();
  }
  if (tree && process_.cgroup) {
    const std::string pids = slurp(process_.cgroup->dir.get(), "cgroup.procs");
    std::string_view rest = pids;
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(line.size() == rest.size() ? line.size() : line.size() + 1);
      const auto pid = static_cast<pid_t>(parse_number(line, 0));
      // A pid of the list cannot have been reused by the agent's own: those are in other cgroups and reaped
      // here.
      if (pid > 1) ::kill(pid, number);
    }
    return;
  }
  if (!ended_) send_signal(process_.pidfd.get(), number);
}

void Job::time_out() {
  timer_ = 0;
  if (ended_) return;
  if (quiet()) {
    timeout_missed_ = true;
    return;
  }
  timed_out_ = true;
  signal(SIGKILL, true);
}

// --- start and end
// ------------------------------------------------------------------------------------------------------

void Job::on_status() {
  std::array<char, 4096> bytes;
  const ssize_t got = ::read(process_.status.get(), bytes.data(), bytes.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) {
    status_bytes_.append(bytes.data(),
                         std::min(static_cast<std::size_t>(got), kMaxStatus - status_bytes_.size()));
    if (process_.again) order_taken();
    return;
  }
  host_.loop().unwatch(process_.status.get());
  process_.status.reset();
  status_closed_ = true;
  if (process_.again) return;  // its end comes next
  status_complete();
  pump();
}

void Job::status_complete() {
  if (is_task_) {
    auto facts = ExitFacts::decode(as_bytes(status_bytes_));
    if (facts) facts_ = *std::move(facts);
    status_bytes_.clear();
    return;
  }
  ByteReader reader(status_bytes_);
  pid_ = reader.number<std::int32_t>();
  if (!reader.rest().empty()) {
    auto failure = LaunchFailure::decode(reader.rest());
    facts_.error = failure ? std::move(failure->error) : std::move(failure).error();
  } else {
    started_ = true;
    announce();
  }
  status_bytes_.clear();
}

/// From here on the process's end is the command's.
void Job::order_taken() {
  process_.again = nullptr;
  if (nudge_timer_ != 0) host_.loop().cancel(std::exchange(nudge_timer_, 0));
  write_input();
}

/// A ready child ended before it had taken its order. Nothing was written to its pipes, so nothing is lost.
void Job::start_again() {
  pause();
  reap(process_.pidfd.get());
  host_.release(std::move(process_.cgroup));
  auto next = process_.again();
  if (next) {
    next->keep_on_reset = process_.keep_on_reset;
    next->timeout_ms = process_.timeout_ms;
    adopt(*std::move(next));
    status_closed_ = false;
  } else {
    facts_.error = std::move(next).error();
    facts_.exit_code = 126;
    ended_ = status_closed_ = true;
    for (auto& output : outputs_) output.ended = output.drained = true;
    close_input();
    if (timer_ != 0) host_.loop().cancel(std::exchange(timer_, 0));
  }
  order_taken();
  resume();
}

void Job::process_ended() {
  // It may have told its pid and ended before either was looked at.
  if (process_.again && !status_closed_) on_status();
  if (process_.again) return start_again();
  host_.loop().unwatch(process_.pidfd.get());
  const Ended ended = reap(process_.pidfd.get());
  ended_ = true;
  if (timer_ != 0) host_.loop().cancel(std::exchange(timer_, 0));
  facts_.wall_ns = monotonic_ns() - started_ns_;
  facts_.cpu_ns = ended.cpu_ns;
  if (!is_task_) {
    facts_.exit_code = ended.exit_code;
    facts_.signal = ended.signal;
    facts_.timed_out = timed_out_;
    await_tree();
  } else if (ended.exit_code != 0) {
    facts_.exit_code = -1;
    facts_.signal = ended.signal;
    if (!facts_.error)
      facts_.error = Error{ErrorCode::kGuest, "The file operation was killed in the guest",
                           "Try again; see whether the guest is out of memory", 0};
  }
  for (auto& output : outputs_) begin_drain(output);
  close_input();
  pump();
}

/// A command that was killed with its tree has ended when the tree has: thousands of processes (a fork bomb)
/// take seconds to end, and until then the next command finds neither memory nor processes for itself. The
/// wait is bounded, for a process may hang in a file system of the user's.
void Job::await_tree() {
  const int events = process_.cgroup->events.get();
  if (!tree_killed_ || !process_.cgroup->populated()) return leave_cgroup();
  const auto watched = host_.loop().watch(events, EPOLLPRI, [this](std::uint32_t) {
    if (!process_.cgroup->populated()) tree_ended();
  });
  if (!watched) return leave_cgroup();
  tree_timer_ = host_.loop().after(kTreeWait, [this] {
    tree_timer_ = 0;
    tree_ended();
  });
}

void Job::tree_ended() {
  leave_cgroup();
  pump();
}

void Job::leave_cgroup() {
  host_.loop().unwatch(process_.cgroup->events.get());
  if (tree_timer_ != 0) host_.loop().cancel(std::exchange(tree_timer_, 0));
  facts_.oom_killed = process_.cgroup->oom_killed();
  host_.release(std::move(process_.cgroup));
}

void Job::begin_drain(Output& output) {
  if (output.drained) return;
  int bytes = 0;
  output.after_exit = kTerminalDrain;
  if (!process_.tty && ::ioctl(output.fd.get(), FIONREAD, &bytes) == 0)
    output.after_exit = static_cast<std::size_t>(bytes);
  if (output.after_exit == 0) output.drained = true;
}

void Job::check_finished() {
  if (!ended_ || !status_closed_ || finished_ || quiet() || tree_timer_ != 0) return;
  for (const auto& output : outputs_) {
    if (!output.drained || (stream_ != 0 && !output.pending.empty())) return;
  }
  finished_ = true;
  for (auto& output : outputs_) {
    host_.loop().unwatch(output.fd.get());
    if (output.fd.valid() && !output.ended) host_.drain(std::move(output.fd));
    output.fd.reset();
  }
  if (stream_ != 0) send_exit();
  host_.job_finished(*this);
}

void Job::send_exit() {
  for (auto& output : outputs_) host_.bulk().send(FrameType::kEof, output.channel, stream_, {});
  host_.bulk().send(FrameType::kExit, Channel::kStdin, stream_, facts_.encode());
}

// --- output
// -------------------------------------------------------------------------------------------------------------

void Job::pump() {
  if (quiet()) return;
  if (finished_) {
    if (stream_ == 0) return;
    bool left = false;
    for (auto& output : outputs_) left = !send_pending(output) || left;
    if (left) return;
    send_exit();
    return host_.job_finished(*this);
  }
  for (auto& output : outputs_) pump_output(output);
  check_finished();
}

/// True when nothing is pending any more.
bool Job::send_pending(Output& output) {
  while (!output.pending.empty()) {
    const std::size_t size = std::min({output.pending.size(), output.credit.may_send(), kMaxPayload});
    if (size == 0 || !host_.bulk().has_room()) return false;
    host_.bulk().send(FrameType::kData, output.channel, stream_,
                      std::string_view(output.pending).substr(0, size));
    output.credit.consumed(size);
    output.pending.erase(0, size);
  }
  return true;
}

std::size_t Job::readable_now(const Output& output) const {
  if (output.drained || output.ended || quiet()) return 0;
  std::size_t size = kDetachedRead;
  if (stream_ != 0) {
    // A short command may end before its start was announced; its output waits for that.
    if (!started_ && !status_closed_) return 0;
    if (!output.pending.empty() || !host_.bulk().has_room()) return 0;
    size = std::min(output.credit.may_send(), kMaxPayload);
  }
  return ended_ ? std::min(size, output.after_exit) : size;
}

ssize_t Job::read_output(Output& output, std::size_t size) {
  if (stream_ != 0) {
    // Straight into the port's queue: output is copied once on its way from the pipe to the port.
    const auto room = host_.bulk().prepare(size);
    const ssize_t got = ::read(output.fd.get(), room.data(), room.size());
    if (got <= 0) return got;
    host_.bulk().commit(FrameType::kData, output.channel, stream_, static_cast<std::size_t>(got));
    output.credit.consumed(static_cast<std::size_t>(got));
    if (static_cast<std::size_t>(got) == kMaxPayload) widen(output);
    return got;
  }
  std::array<char, kDetachedRead> bytes;
  const ssize_t got = ::read(output.fd.get(), bytes.data(), std::min(size, bytes.size()));
  if (got > 0) keep(output, {bytes.data(), static_cast<std::size_t>(got)});
  return got;
}

/// A pipe has room for one frame, and for more once it was full: most commands write less, and each page of
/// room is work for the kernel.
void Job::widen(Output& output) const {
  if (output.widened) return;
  output.widened = true;
  if (!process_.tty) ::fcntl(output.fd.get(), F_SETPIPE_SZ, kWidePipe);
}

void Job::keep(Output& output, std::string_view bytes) {
  output.pending.append(bytes);
  if (output.pending.size() <= kRingSize) return;
  output.pending.erase(0, output.pending.size() - kRingSize);
  facts_.truncated = true;
}

void Job::pump_output(Output& output) {
  if (stream_ != 0 && started_ && !quiet()) send_pending(output);
  for (int turn = 0; turn < kReadsPerTurn; ++turn) {
    const std::size_t size = readable_now(output);
    if (size == 0) break;
    const ssize_t got = read_output(output, size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      // poll() makes a terminal hand over what is still on its way.
      pollfd check{output.fd.get(), POLLIN, 0};
      if (ended_ && (::poll(&check, 1, 0) <= 0 || (check.revents & POLLIN) == 0)) output.drained = true;
      break;
    }
    if (got <= 0) {  // a terminal whose last slave is closed gives EIO
      output.ended = output.drained = true;
      break;
    }
    if (ended_) output.after_exit -= static_cast<std::size_t>(got);
    if (ended_ && output.after_exit == 0) output.drained = true;
  }
  watch_output(output);
}

void Job::watch_output(Output& output) {
  const bool wanted = readable_now(output) != 0;
  if (wanted == output.watched) return;
  output.watched = wanted;
  if (!wanted) return host_.loop().unwatch(output.fd.get());
  [[maybe_unused]] const auto ok =
      host_.loop().watch(output.fd.get(), EPOLLIN, [this, &output](std::uint32_t) {
        pump_output(output);
        check_finished();
      });
}

Status Job::on_credit(Channel channel, std::uint32_t bytes) {
  for (auto& output : outputs_) {
    if (output.channel != channel) continue;
    DRUPE_TRY(output.credit.grant(bytes));
    pump();
    return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              "Credit was granted for a channel that the guest does not send on");
}

// --- input
// --------------------------------------------------------------------------------------------------------------

Status Job::on_data(ByteView bytes) {
  DRUPE_TRY(input_.credit.received(bytes.size()));
  // What was written already goes first, so the queue stays within the window.
  if (input_.begin >= kMaxPayload) input_.queue.erase(0, std::exchange(input_.begin, 0));
  input_.queue.append(as_text(bytes));
  write_input();
  return {};
}

Status Job::on_eof() {
  input_.end_wanted = true;
  write_input();
  return {};
}

// A terminal has no end of file but the character for it, and loses that when its program changes the
// terminal's mode at the same moment, as shells do. An end is final, so the character comes again until the
// program has taken it.
void Job::send_terminal_end() {
  constexpr std::chrono::seconds kAgain{1};
  end_timer_ = 0;
  if (finished_ || !input_.fd.valid()) return;
  if (!quiet()) {
    [[maybe_unused]] const ssize_t put = ::write(input_.fd.get(), &kEndOfTransmission, 1);
  }
  end_timer_ = host_.loop().after(kAgain, [this] { send_terminal_end(); });
}

void Job::write_input() {
  // A child that has not taken its order gets nothing that another could not get in its place.
  if (quiet() || process_.again) return;
  std::size_t done = 0;
  while (input_.begin < input_.queue.size()) {
    if (!input_.fd.valid()) {  // nobody reads: the bytes are gone as with a closed pipe, and the sender is
                               // not held up
      done += input_.queue.size() - input_.begin;
      input_.begin = input_.queue.size();
      break;
    }
    const ssize_t put =
        ::write(input_.fd.get(), input_.queue.data() + input_.begin, input_.queue.size() - input_.begin);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) break;
    if (put < 0) {
      close_input();
      continue;
    }
    input_.begin += static_cast<std::size_t>(put);
    done += static_cast<std::size_t>(put);
  }
  if (input_.begin == input_.queue.size()) {
    input_.queue.clear();
    input_.begin = 0;
    if (input_.end_wanted && input_.fd.valid()) {
      input_.end_wanted = false;
      if (process_.tty)
        send_terminal_end();
      else
        close_input();
    }
  }
  const std::uint32_t grant = input_.credit.consumed(done);
  if (grant != 0 && stream_ != 0)
    host_.bulk().send(FrameType::kCredit, Channel::kStdin, stream_, encode_credit(grant));
  watch_input();
}

void Job::watch_input() {
  const bool wanted = input_.fd.valid() && input_.begin < input_.queue.size();
  if (wanted == input_.watched) return;
  input_.watched = wanted;
  if (!wanted) return host_.loop().unwatch(input_.fd.get());
  [[maybe_unused]] const auto ok =
      host_.loop().watch(input_.fd.get(), EPOLLOUT, [this](std::uint32_t) { write_input(); });
}

void Job::close_input() {
  host_.loop().unwatch(input_.fd.get());
  input_.watched = false;
  input_.fd.reset();
}

void Job::on_resize(const ResizePayload& size) {
  if (!process_.tty) return;
  winsize window{};
  window.ws_row = size.rows;
  window.ws_col = size.columns;
  ::ioctl(outputs_[0].fd.get(), TIOCSWINSZ, &window);
}

}  // namespace drupe::agent
