// Managed processes: what other threads ask for.
#include "api/service/processes.h"

#include <algorithm>
#include <csignal>
#include <future>

#include "api/service/ids.h"
#include "api/service/processes_impl.h"
#include "engine/options.h"

namespace drupe::api {
namespace {

constexpr std::chrono::seconds kAskLimit{30};
constexpr std::chrono::seconds kStartLimit{60};
constexpr std::chrono::seconds kKillLimit{20};
constexpr std::chrono::milliseconds kTreePoll{200};
constexpr std::size_t kMostInput = std::size_t{4} << 20;
constexpr std::size_t kReadAtOnce = std::size_t{256} << 10;

std::unexpected<Error> no_process() {
  return fail(ErrorCode::kNotFound, "process not found");
}

std::vector<std::string> argv_of(const ProcessSpec& spec) {
  if (spec.cmd.empty()) return {"/bin/sh", "-c", "[ -x /bin/bash ] && exec /bin/bash -l; exec /bin/sh -l"};
  std::vector<std::string> argv{spec.cmd};
  argv.insert(argv.end(), spec.args.begin(), spec.args.end());
  return argv;
}

}  // namespace

Processes::Processes(Store& store, std::unique_ptr<LoopThread> thread)
    : store_(store), thread_(std::move(thread)) {}

Result<std::unique_ptr<Processes>> Processes::start(Store& store) {
  DRUPE_ASSIGN(auto thread, LoopThread::start("processes"));
  return std::unique_ptr<Processes>(new Processes(store, std::move(thread)));
}

Processes::~Processes() {
  // Connections end on the thread that has them.
  static_cast<void>(ask([this]() -> Status {
    links_.clear();
    return {};
  }));
  thread_.reset();
}

Status Processes::ask(const std::function<Status()>& call) {
  auto promise = std::make_shared<std::promise<Status>>();
  auto answer = promise->get_future();
  thread_->post([promise, call] { promise->set_value(call()); });
  if (answer.wait_for(kAskLimit) != std::future_status::ready)
    return fail(ErrorCode::kTimeout, "The processes' thread does not answer");
  return answer.get();
}

Result<std::vector<Processes::Shared>> Processes::known(const std::string& sandbox) {
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = processes_.find(sandbox); found != processes_.end()) {
      std::vector<Shared> all;
      for (const auto& [id, process] : found->second) all.push_back(process);
      return all;
    }
  }
  // Those of an earlier druped.
  DRUPE_ASSIGN(const auto rows, store_.list_processes(sandbox));
  const std::scoped_lock lock(mutex_);
  auto& of_sandbox = processes_[sandbox];
  for (const ProcessRow& row : rows) {
    if (of_sandbox.contains(row.id)) continue;
    auto process = std::make_shared<Process>();
    process->row = row;
    process->opened = true;
    process->newest_seq = static_cast<std::uint64_t>(row.seq_reserved);
    of_sandbox[row.id] = std::move(process);
  }
  std::vector<Shared> all;
  for (const auto& [id, process] : of_sandbox) all.push_back(process);
  return all;
}

Status Processes::ensure_linked(const ProcessTarget& target) {
  DRUPE_TRY(known(target.sandbox));
  return ask([this, &target] { return link(target.sandbox, target.directory.get()); });
}

Result<Processes::Shared> Processes::find(const ProcessTarget& target, const std::string& id) {
  DRUPE_TRY(ensure_linked(target));
  const std::scoped_lock lock(mutex_);
  const auto& of_sandbox = processes_[target.sandbox];
  const auto found = of_sandbox.find(id);
  if (found == of_sandbox.end()) return no_process();
  return found->second;
}

ProcessView Processes::view(const Process& process) const {
  ProcessView view;
  view.row = process.row;
  view.state = process.row.failed        ? "failed"
               : process.row.finished_ns ? "exited"
               : !process.opened         ? "starting"
               : process.terminating     ? "terminating"
                                         : "running";
  view.newest_seq = process.newest_seq;
  view.oldest_seq = process.frames.empty() ? process.newest_seq : process.frames.front().seq;
  view.bytes = process.bytes;
  return view;
}

Status Processes::make_room(const std::string& sandbox) {
  const std::scoped_lock lock(mutex_);
  auto& of_sandbox = processes_[sandbox];
  while (of_sandbox.size() >= kMostProcesses) {
    // Ids begin with the time they were made at.
    const auto oldest = std::ranges::find_if(
        of_sandbox, [](const auto& entry) { return entry.second->row.finished_ns.has_value(); });
    if (oldest == of_sandbox.end())
      return fail(ErrorCode::kInvalidState,
                  "this sandbox runs 64 managed processes already; end one of them first");
    DRUPE_TRY(store_.drop_process(oldest->first));
    of_sandbox.erase(oldest);
  }
  return {};
}

Result<ProcessView> Processes::create(const ProcessTarget& target, const ProcessSpec& spec) {
  OpenRequest request;
  request.exec.argv = argv_of(spec);
  request.exec.env = spec.env;
  request.exec.cwd = spec.cwd;
  request.exec.tty = spec.pty;
  request.exec.rows = spec.rows;
  request.exec.columns = spec.columns;
  request.exec.stdin_open = true;
  request.exec.keep_on_reset = true;
  request.exec.exec_id = make_id("proc_");
  DRUPE_TRY(check_exec(request.exec));
  DRUPE_TRY(ensure_linked(target));
  DRUPE_TRY(make_room(target.sandbox));
  auto process = std::make_shared<Process>();
  process->row = {.sandbox_id = target.sandbox,
                  .id = request.exec.exec_id,
                  .pty = spec.pty,
                  .cmd = spec.cmd,
                  .args = spec.args,
                  .cwd = spec.cwd,
                  .pid = 0,
                  .created_ns = now_ns(),
                  .finished_ns = {},
                  .exit_code = {},
                  .signal = {}};
  DRUPE_TRY(store_.save_process(process->row));
  {
    const std::scoped_lock lock(mutex_);
    processes_[target.sandbox][process->row.id] = process;
  }
  DRUPE_TRY(ask([&]() -> Status {
    const auto link = links_.find(target.sandbox);
    if (link == links_.end())
      return fail(ErrorCode::kInvalidState, "the sandbox has just ended or been paused");
    open(process, *link->second, request);
    return {};
  }));
  std::unique_lock lock(mutex_);
  const bool begun = changed_.wait_until(lock, Clock::now() + kStartLimit, [&] { return process->opened; });
  if (!process->problem) {
    if (begun) DRUPE_TRY(store_.save_process(process->row));
    return view(*process);
  }
  Error problem = *process->problem;
  processes_[target.sandbox].erase(process->row.id);
  DRUPE_TRY(store_.drop_process(process->row.id));
  problem.code = ErrorCode::kInvalidArgument;
  return std::unexpected(std::move(problem));
}

Status Processes::look_for_tree(const Shared& process) {
  {
    const std::scoped_lock lock(mutex_);
    if (!process->row.finished_ns || process->row.tree_exited) return {};
    if (process->row.failed) {
      process->row.tree_exited = true;
      return {};
    }
  }
  auto promise = std::make_shared<std::promise<Result<std::string>>>();
  auto answer = promise->get_future();
  thread_->post([this, promise, sandbox = process->row.sandbox_id] {
    const auto link = links_.find(sandbox);
    if (link == links_.end())
      return promise->set_value(fail(ErrorCode::kInvalidState, "the sandbox is not running"));
    link->second->client->request(
        static_cast<std::uint16_t>(RequestKind::kProcesses), {},
        [promise](Result<std::string> reply) { promise->set_value(std::move(reply)); });
  });
  if (answer.wait_for(kAskLimit) != std::future_status::ready)
    return fail(ErrorCode::kTimeout, "The sandbox did not answer in time");
  DRUPE_ASSIGN(const std::string body, answer.get());
  DRUPE_ASSIGN(const ProcessList list, ProcessList::decode(as_bytes(body)));
  const std::scoped_lock lock(mutex_);
  process->row.tree_exited =
      !list.truncated && std::ranges::none_of(list.processes, [&](const GuestProcess& one) {
        return one.exec_id == process->row.id;
      });
  return process->row.tree_exited ? store_.save_process(process->row) : Status{};
}

Result<std::vector<ProcessView>> Processes::list(const ProcessTarget& target) {
  DRUPE_TRY(ensure_linked(target));
  DRUPE_ASSIGN(const auto all, known(target.sandbox));
  std::vector<ProcessView> views;
  for (const Shared& process : all) {
    DRUPE_TRY(look_for_tree(process));
    const std::scoped_lock lock(mutex_);
    views.push_back(view(*process));
  }
  return views;
}

Result<ProcessView> Processes::get(const ProcessTarget& target, const std::string& id) {
  DRUPE_ASSIGN(const Shared process, find(target, id));
  DRUPE_TRY(look_for_tree(process));
  const std::scoped_lock lock(mutex_);
  return view(*process);
}

Result<std::uint64_t> Processes::input(const ProcessTarget& target, const std::string& id,
                                       std::string bytes) {
  DRUPE_ASSIGN(const Shared process, find(target, id));
  std::uint64_t seq = 0;
  {
    const std::scoped_lock lock(mutex_);
    if (process->row.finished_ns) return fail(ErrorCode::kInvalidState, "the process has ended");
    if (process->row.stdin_closed) return fail(ErrorCode::kInvalidState, "the process's stdin is closed");
    if (process->given_input.size() + process->unwritten + bytes.size() > kMostInput)
      return fail(ErrorCode::kInvalidState, "the process has not read 4 MiB of its input yet");
    process->given_input += bytes;
    seq = ++process->input_seq;
  }
  thread_->post([this, process] { feed(process); });
  return seq;
}

Status Processes::close_stdin(const ProcessTarget& target, const std::string& id) {
  DRUPE_ASSIGN(const Shared process, find(target, id));
  {
    const std::scoped_lock lock(mutex_);
    if (process->row.pty) return fail(ErrorCode::kInvalidState, "a terminal's input has no end of its own");
    process->row.stdin_closed = true;
    DRUPE_TRY(store_.save_process(process->row));
  }
  thread_->post([this, process] { feed(process); });
  return {};
}

Status Processes::resize(const ProcessTarget& target, const std::string& id, std::uint16_t rows,
                         std::uint16_t columns) {
  DRUPE_ASSIGN(const Shared process, find(target, id));
  {
    const std::scoped_lock lock(mutex_);
    if (!process->row.pty) return fail(ErrorCode::kInvalidArgument, "the process has no terminal");
    if (process->row.finished_ns) return fail(ErrorCode::kInvalidState, "the process has ended");
  }
  return ask([process, rows, columns]() -> Status {
    if (process->link != nullptr) process->link->client->resize(process->stream, rows, columns);
    return {};
  });
}

Status Processes::signal(const ProcessTarget& target, const std::string& id, int number) {
  DRUPE_ASSIGN(const Shared process, find(target, id));
  {
    const std::scoped_lock lock(mutex_);
    if (process->row.finished_ns) return fail(ErrorCode::kInvalidState, "the process has ended");
  }
  return ask([process, number]() -> Status {
    if (process->link != nullptr) process->link->client->signal(process->stream, number, true);
    return {};
  });
}

Result<std::optional<ProcessView>> Processes::wait(const ProcessTarget& target, const std::string& id,
                                                   bool tree, Deadline deadline) {
  DRUPE_ASSIGN(const Shared process, find(target, id));
  while (true) {
    if (tree) DRUPE_TRY(look_for_tree(process));
    std::unique_lock lock(mutex_);
    const auto done = [&] { return process->row.finished_ns.has_value(); };
    if (done() && (!tree || process->row.tree_exited)) return view(*process);
    if (Clock::now() >= deadline) return std::nullopt;
    // What its leader left behind ends without telling anybody.
    const bool only_tree = done();
    changed_.wait_until(lock, only_tree ? std::min(deadline, Clock::now() + kTreePoll) : deadline,
                        [&] { return !only_tree && done(); });
  }
}

Result<ProcessView> Processes::end(const ProcessTarget& target, const std::string& id,
                                   std::chrono::milliseconds grace) {
  DRUPE_ASSIGN(const Shared process, find(target, id));
  const auto send = [&](int number) {
    return ask([this, process, number]() -> Status {
      const auto link = links_.find(process->row.sandbox_id);
      if (link == links_.end()) return {};
      if (process->link != nullptr) {
        process->link->client->signal(process->stream, number, true);
        return {};
      }
      // Its leader has ended; the rest is found by its name.
      const SignalExecRequest request{process->row.id, number, true};
      link->second->client->request(static_cast<std::uint16_t>(RequestKind::kSignalExec), request.encode(),
                                    [](const Result<std::string>&) {});
      return {};
    });
  };
  DRUPE_TRY(look_for_tree(process));
  {
    const std::scoped_lock lock(mutex_);
    if (process->row.finished_ns && process->row.tree_exited) return view(*process);
    process->terminating = true;
  }
  if (grace.count() > 0) {
    DRUPE_TRY(send(SIGTERM));
    DRUPE_ASSIGN(const auto ended, wait(target, id, true, Clock::now() + grace));
    if (ended) return *ended;
  }
  DRUPE_TRY(send(SIGKILL));
  DRUPE_ASSIGN(const auto ended, wait(target, id, false, Clock::now() + kKillLimit));
  if (!ended) return fail(ErrorCode::kTimeout, "the process did not end in time");
  return get(target, id);
}

Result<Processes::Output> Processes::read(const ProcessTarget& target, const std::string& id,
                                          std::uint64_t after, Deadline deadline) {
  DRUPE_ASSIGN(const Shared process, find(target, id));
  std::unique_lock lock(mutex_);
  const auto has_news = [&] { return process->newest_seq > after || process->row.finished_ns; };
  changed_.wait_until(lock, deadline, has_news);
  Output out;
  const std::uint64_t oldest =
      process->frames.empty() ? process->newest_seq + 1 : process->frames.front().seq;
  if (after != 0 && after < process->newest_seq && after + 1 < oldest) {
    out.expired = oldest;
    return out;
  }
  std::size_t size = 0;
  for (const OutputFrame& frame : process->frames) {
    if (frame.seq <= after) continue;
    if (size > kReadAtOnce) return out;
    size += frame.bytes.size();
    out.frames.push_back(frame);
  }
  if (process->row.finished_ns) out.ended = view(*process);
  return out;
}

void Processes::forget(const std::string& sandbox) {
  std::vector<Shared> gone;
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = processes_.find(sandbox); found != processes_.end()) {
      for (const auto& [id, process] : found->second) {
        gone.push_back(process);
        if (!process->row.finished_ns) process->row.finished_ns = now_ns();
        process->row.failed = process->row.failed || (!process->row.exit_code && !process->row.signal);
      }
      processes_.erase(found);
    }
    changed_.notify_all();
  }
  static_cast<void>(store_.drop_processes(sandbox));
  thread_->post([this, sandbox, gone] {
    for (const Shared& process : gone) process->link = nullptr;
    links_.erase(sandbox);
  });
}

}  // namespace drupe::api
