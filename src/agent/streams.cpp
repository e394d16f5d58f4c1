// Opening and ending the streams of the bulk port.
#include <algorithm>
#include <cerrno>
#include <csignal>

#include <unistd.h>

#include "agent/ends.h"
#include "agent/order.h"
#include "agent/server.h"
#include "agent/tasks.h"

namespace drupe::agent {
namespace {

// Commands that ended while nobody was attached and whose facts and rings are kept.
constexpr std::size_t kMaxFinished = 32;
constexpr std::size_t kMaxOpening = 2 * kMaxOpenRequest;
constexpr std::size_t kMaxJobs = 4096;

std::unexpected<Error> cannot_start(int err) {
  if (err == EAGAIN || err == ENOMEM)
    return std::unexpected(Error{ErrorCode::kLimit, "The guest has no room for another process",
                                 "End some of its processes first", err});
  return fail_sys("Starting a process in the guest failed", err);
}

[[noreturn]] void run_task_child(const Work& work, const OpenRequest& request, const ChildFds& fds) {
  reset_process();
  const int status = arrange_descriptors(fds);
  Result<std::string> done = std::string();
  if (auto entered = work.enter(); !entered)
    done = std::unexpected(std::move(entered).error());
  else {
    ::close_range(static_cast<unsigned>(status) + 1, ~0U, 0);
    done = run_task(request.kind, request.file);
  }
  ExitFacts facts;
  if (done) {
    facts.exit_code = 0;
    facts.result = *std::move(done);
  } else {
    facts.error = std::move(done).error();
  }
  [[maybe_unused]] const auto told = write_all(status, facts.encode());
  ::_exit(0);
}

}  // namespace

Status Server::open_stream(const Frame& frame) {
  DRUPE_ASSIGN(OpenAssembler assembler, OpenAssembler::begin(frame.payload));
  if (opening_bytes_ + assembler.total() > kMaxOpening) {
    refuse(frame.id,
           Error{ErrorCode::kBusy, "Too many large commands are being sent at once", "Try again", 0});
    return {};
  }
  opening_bytes_ += assembler.total();
  auto& stream = streams_[frame.id];
  stream.opening = std::make_unique<OpenAssembler>(std::move(assembler));
  if (stream.opening->complete()) start_stream(frame.id);
  return {};
}

void Server::start_stream(std::uint32_t id) {
  const auto assembler = std::move(streams_.at(id).opening);
  opening_bytes_ -= assembler->total();
  const auto request = assembler->decode();
  if (!request) return refuse(id, request.error());
  Status opened;
  if (ended_ || shutting_down_)
    opened = fail(ErrorCode::kInvalidState, "The guest's processes have ended", "Start the sandbox again");
  else if (freezer_.frozen())
    opened = fail(ErrorCode::kInvalidState, "The guest is frozen", "Resume the sandbox first");
  else if (request->kind == OpenKind::kExec)
    opened = open_exec(id, request->exec);
  else if (request->kind == OpenKind::kAttach)
    opened = open_attach(id, request->exec);
  else
    opened = open_task(id, *request);
  if (!opened) refuse(id, opened.error());
}

Status Server::open_exec(std::uint32_t id, const ExecOptions& options) {
  const auto known = execs_.find(options.exec_id);
  if (known != execs_.end() && !known->second->finished())
    return fail(ErrorCode::kAlreadyExists, "A command with the id \"" + options.exec_id + "\" is running");
  if (known != execs_.end()) forget(*known->second);
  if (execs_.size() >= kMaxJobs) return fail(ErrorCode::kLimit, "Too many commands are running in the guest");
  Job::Process process;
  if (auto ready = ready_.use(options, defaults_)) {
    process = std::move(ready->process);
    process.again = [this, order = std::move(ready->order)] { return start_again(order); };
  } else {
    DRUPE_ASSIGN(process, start_command(options, defaults_));
  }
  process.keep_on_reset = options.keep_on_reset;
  process.timeout_ms = options.timeout_ms;
  auto job = std::make_unique<Job>(*this, options.exec_id, std::move(process));
  Job& raw = *job;
  execs_[options.exec_id] = std::move(job);
  streams_.at(id).job = &raw;
  raw.attach(id);
  raw.start();
  return {};
}

Result<Job::Process> Server::start_command(const ExecOptions& options, const Defaults& defaults) {
  const StdinPipe in = options.stdin_open ? StdinPipe::kYes : StdinPipe::kNo;
  DRUPE_ASSIGN(Ends ends, options.tty ? make_terminal_ends(work_, options) : make_pipe_ends(in));
  DRUPE_ASSIGN(ends.ours.cgroup, cgroups_.acquire());
  const pid_t pid = work_.clone(ChildNamespace::kWork, ends.ours.cgroup->dir.get(), &ends.ours.pidfd);
  if (pid == 0) launch(work_, options, defaults, ends.child());
  if (pid < 0) {
    const int err = errno;
    cgroups_.release(std::move(ends.ours.cgroup));
    return cannot_start(err);
  }
  return std::move(ends.ours);
}

Result<Job::Process> Server::start_again(const std::string& order) {
  if (ended_ || shutting_down_)
    return fail(ErrorCode::kInvalidState, "The guest's processes have ended", "Start the sandbox again");
  DRUPE_ASSIGN(const Order command, Order::decode(as_bytes(order).subspan(sizeof(std::uint32_t))));
  return start_command(command.options, command.defaults);
}

Status Server::open_attach(std::uint32_t id, const ExecOptions& options) {
  const auto found = execs_.find(options.exec_id);
  if (found == execs_.end())
    return fail(ErrorCode::kNotFound,
                "There is no command with the id \"" + options.exec_id + "\" in the guest");
  Job& job = *found->second;
  if (job.stream() != 0) {
    const std::uint32_t old = job.stream();
    job.detach();
    reset_stream(old, Error{ErrorCode::kCancelled, "Another client attached to the command", {}, 0});
  }
  streams_.at(id).job = &job;
  job.attach(id);
  return {};
}

Status Server::open_task(std::uint32_t id, const OpenRequest& request) {
  if (tasks_.size() >= kMaxJobs)
    return fail(ErrorCode::kLimit, "Too many file operations are running in the guest");
  DRUPE_ASSIGN(Ends ends, make_task_ends());
  const pid_t pid = work_.clone(ChildNamespace::kAgent, cgroups_.tasks(), &ends.ours.pidfd);
  if (pid == 0) run_task_child(work_, request, ends.child());
  if (pid < 0) return cannot_start(errno);
  tasks_.push_back(std::make_unique<Job>(*this, std::string(), std::move(ends.ours)));
  Job& job = *tasks_.back();
  streams_.at(id).job = &job;
  job.attach(id);
  job.start();
  return {};
}

/// Ends a stream that has no process: its only frame is kExit.
void Server::refuse(std::uint32_t id, const Error& error) {
  ExitFacts facts;
  facts.exit_code = error.code == ErrorCode::kNotFound ? 127 : 126;
  facts.error = error;
  bulk_->send(FrameType::kExit, Channel::kStdin, id, facts.encode());
  streams_.erase(id);
}

void Server::reset_stream(std::uint32_t id, const Error& error) {
  bulk_->send(FrameType::kReset, Channel::kStdin, id, error.message);
  host_reset(id);
}

void Server::host_reset(std::uint32_t id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  if (found->second.opening) opening_bytes_ -= found->second.opening->total();
  Job* job = found->second.job;
  streams_.erase(found);
  if (job != nullptr && job->stream() == id) job->reset_by_host();
}

void Server::job_finished(Job& job) {
  const bool is_main = job.exec_id() == "main";
  // After its last frame has been written. The end of the main command is most often the sandbox's.
  if (is_main)
    ready_.prepare_later();
  else if (!job.is_task())
    loop_.defer([this] {
      bulk_->give_back();
      ready_.prepare();
    });
  if (job.stream() != 0 || job.is_task()) {
    if (job.stream() != 0) streams_.erase(job.stream());
    job.detach();
    forget(job);
  } else {
    finished_.push_back(job.exec_id());
    while (finished_.size() > kMaxFinished) {
      const auto oldest = execs_.find(finished_.front());
      if (oldest != execs_.end() && oldest->second->finished() && oldest->second->stream() == 0)
        forget(*oldest->second);
      else
        finished_.erase(finished_.begin());
    }
  }
  if (is_main && on_main_finished_) std::exchange(on_main_finished_, nullptr)();
}

/// Takes the job out of the tables at once; it may be on the stack, so it goes after the current callbacks.
void Server::forget(Job& job) {
  std::shared_ptr<Job> last;
  if (job.is_task()) {
    const auto at =
        std::find_if(tasks_.begin(), tasks_.end(), [&](const auto& one) { return one.get() == &job; });
    if (at == tasks_.end()) return;
    last = std::move(*at);
    tasks_.erase(at);
  } else {
    std::erase(finished_, job.exec_id());
    const auto at = execs_.find(job.exec_id());
    if (at == execs_.end() || at->second.get() != &job) return;
    last = std::move(at->second);
    execs_.erase(at);
  }
  loop_.defer([last] {});
}

}  // namespace drupe::agent
