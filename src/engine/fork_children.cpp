#include <algorithm>
#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/ids.h"
#include "engine/fork_parts.h"

namespace drupe {
namespace {

constexpr std::chrono::minutes kQueueWait{10};
constexpr int kSlotPollMs = 3;
constexpr int kStatusPollMs = 1000;
constexpr std::size_t kMostPrepared = 8;

std::string called(const SandboxRecord& record) {
  return record.name.empty() ? record.id : record.name;
}

bool exists(int dir, const std::string& name) {
  return ::faccessat(dir, name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

}  // namespace

EngineImpl::ForkChildren::~ForkChildren() {
  if (released_) return;
  for (Child& child : children_) drop(child);
}

void EngineImpl::ForkChildren::drop(Child& child) {
  if (child.shim) {
    child.shim->kill();
    child.shim.reset();
  }
  child.pipe.reset();
  child.slot = {};
  child.held.lock.reset();
  if (child.placed) {
    static_cast<void>(engine_.remove(child.held.id, true));
  } else if (!child.scratch.path.empty()) {
    release_promise(engine_.home_, child.held.id, child.held.record.shape.memory_mib);
    static_cast<void>(engine_.home_.discard(child.scratch.path));
  }
  child = Child();
}

SandboxRecord EngineImpl::ForkChildren::record_of(const SandboxRecord& parent, const std::string& id,
                                                  std::size_t index) const {
  SandboxRecord record = parent;
  record.id = id;
  record.name = plan_.names.empty() ? std::string() : plan_.names[index];
  record.parent_id = parent.id;
  record.hostname = parent.hostname == parent.id ? id : parent.hostname;
  record.machine_id = to_hex(random_bytes(16));
  record.state = SandboxState::kCreated;
  record.saved.reset();
  if (plan_.network) record.network = *plan_.network;
  if (plan_.options.idle_timeout_ms) record.idle_timeout_ms = *plan_.options.idle_timeout_ms;
  record.network.publications.clear();  // A port leads to one sandbox, and the parent has it.
  record.detached = true;
  record.auto_remove = false;
  record.created_ns = realtime_ns();
  record.started_ns = record.finished_ns = record.paused_ns = 0;
  return record;
}

void EngineImpl::ForkChildren::prepare(const ForkSource& source) {
  // A member of private networks is told of them when its shim starts, and becomes one only when it is
  // placed.
  const auto networks = networks_of(engine_.home_, plan_.parent);
  if (!networks || !networks->empty()) return;
  const std::size_t most = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, kMostPrepared);
  for (std::size_t i = 0; i < std::min(most, children_.size()); ++i) {
    if (prepare_one(children_[i], source, i)) continue;
    return drop(children_[i]);
  }
}

Status EngineImpl::ForkChildren::prepare_one(Child& child, const ForkSource& source, std::size_t index) {
  DRUPE_ASSIGN(child.scratch, engine_.home_.make_scratch("fork"));
  child.held.id = random_id();
  child.held.record = record_of(source.parent(), child.held.id, index);
  DRUPE_TRY(link_all(child, source, child.held.record));
  add_disk_node(child.held.record);
  DRUPE_TRY(write_record(child.scratch.dir.get(), child.held.record));
  DRUPE_TRY(promise_memory(engine_.home_, child.held.id, child.held.record.shape.memory_mib));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_sys("Making a pipe failed", errno);
  const UniqueFd reading(ends[0]);
  child.pipe = UniqueFd(ends[1]);
  DRUPE_TRY(spawn(child, reading.get()));
  failpoint("engine.fork.prepared");
  return {};
}

Status EngineImpl::ForkChildren::link_all(Child& child, const ForkSource& source,
                                          const SandboxRecord& record) {
  const int dir = child.scratch.dir.get();
  for (const std::string& file : needed_files(record)) {
    if (exists(dir, file)) continue;
    const auto linked = link_file(source.dir(), file, dir, file);
    // The parent's shim shortens its disk chain when it likes: nodes may go between its answer and our links.
    if (!linked && linked.error().code == ErrorCode::kNotFound) plan_.vanished = true;
    DRUPE_TRY(linked);
  }
  return {};
}

Status EngineImpl::ForkChildren::place(const ForkSource& source) {
  for (std::size_t i = 0; i < children_.size(); ++i)
    if (!children_[i].placed) DRUPE_TRY(place_one(source, i));
  return join();
}

Status EngineImpl::ForkChildren::place_one(const ForkSource& source, std::size_t index) {
  plan_.vanished = false;
  auto placed = put(children_[index], source, index);
  if (placed) return placed;
  return std::unexpected(
      std::move(placed).error().in("Making a child of " + called(source.parent()) + " failed"));
}

Status EngineImpl::ForkChildren::put(Child& child, const ForkSource& source, std::size_t index) {
  const auto& chain = source.disk_chain();
  // Cannot be, by how nodes are numbered; if it were, two machines would write to one node.
  if (child.shim && std::ranges::find(chain, child.held.record.disk_chain.back()) != chain.end()) drop(child);
  if (!child.shim) {
    DRUPE_ASSIGN(child.scratch, engine_.home_.make_scratch("fork"));
    child.held.id = random_id();
  }
  SandboxRecord record = record_of(source.parent(), child.held.id, index);
  record.saved = source.saved();
  record.disk_chain = chain;
  DRUPE_TRY(link_all(child, source, record));
  if (child.shim) {
    record.disk_chain.push_back(child.held.record.disk_chain.back());
    record.next_file = std::max(record.next_file, child.held.record.next_file);
  } else {
    add_disk_node(record);
  }
  child.held.record = std::move(record);
  DRUPE_TRY(engine_.publish(child.scratch, child.held.record));
  child.placed = true;
  child.held.dir = std::move(child.scratch.dir);
  child.held.lock = std::move(child.scratch.lock);
  return {};
}

Status EngineImpl::ForkChildren::join() {
  std::vector<std::string> ids;
  for (const Child& child : children_) ids.push_back(child.held.id);
  DRUPE_TRY(engine_.join_forked(plan_.parent, ids));
  // A prepared one has been told that there are none; tell_after_start() finds out when that has changed.
  for (Child& child : children_)
    if (!child.shim) {
      DRUPE_ASSIGN(child.held.networks, networks_of(engine_.home_, child.held.id));
    }
  return {};
}

void EngineImpl::ForkChildren::tell(const Child& child, char byte) {
  // A shim that has ended says so by its status.
  static_cast<void>(write_all(child.pipe.get(), std::string_view(&byte, 1)));
}

Status EngineImpl::ForkChildren::begin_prepared(const ForkSource& source) {
  for (std::size_t i = 0; i < children_.size() && children_[i].shim; ++i) DRUPE_TRY(place_one(source, i));
  while (next_ < children_.size() && children_[next_].shim)
    if (!start_next()) break;
  return {};
}

void EngineImpl::ForkChildren::let_run() {
  may_run_ = true;
  for (const Child& child : children_)
    if (child.begun && child.pipe.valid()) tell(child, kForkMayRun);
  if (next_ > 0) failpoint("engine.fork.spawned");
}

void EngineImpl::ForkChildren::run() {
  const auto flies = [](const Child& child) { return child.begun && !child.over; };
  while (next_ < children_.size() || std::ranges::any_of(children_, flies)) {
    const bool waits_for_slot = next_ < children_.size() && !start_next();
    if (next_ < children_.size() && !waits_for_slot) continue;
    std::vector<pollfd> entries;
    for (const Child& child : children_)
      if (flies(child)) entries.push_back({child.shim->status_fd(), POLLIN, 0});
    ::poll(entries.data(), entries.size(), waits_for_slot ? kSlotPollMs : kStatusPollMs);
    for (Child& child : children_)
      if (flies(child)) child.over = landed(child);
  }
}

/// False when it has to wait for a slot; else the next one has been started or has failed.
bool EngineImpl::ForkChildren::start_next() {
  const bool first =
      std::ranges::none_of(children_, [](const Child& child) { return child.begun && !child.over; });
  auto slot =
      first ? StartSlot::take(engine_.home_, Clock::now() + kQueueWait) : StartSlot::try_take(engine_.home_);
  if (slot && !slot->valid()) return false;
  Child& child = children_[next_++];
  if (slot) child.slot = std::move(*slot);
  child.status = slot ? start(child) : Status(std::unexpected(std::move(slot).error()));
  child.begun = true;
  child.over = !child.status;
  return true;
}

Status EngineImpl::ForkChildren::start(Child& child) {
  // Of a prepared one again: who counts exactly takes the promise of what is not placed for a leftover.
  DRUPE_TRY(promise_memory(engine_.home_, child.held.id, child.held.record.shape.memory_mib));
  if (child.shim) {
    tell(child, kForkSaved);
    if (may_run_) tell(child, kForkMayRun);
    child.shim->begin_now();
  } else {
    DRUPE_TRY(spawn(child, -1));
    failpoint("engine.fork.spawned");
  }
  child.held.lock.reset();  // the shim's alone from here on
  return {};
}

Status EngineImpl::ForkChildren::spawn(Child& child, int pipe) {
  ShimSpec spec = engine_.spec_for(child.held, {.mode = LaunchMode::kForkChild}, *engine_.host_);
  spec.awaits_fork = pipe >= 0;
  const bool placed = child.placed;
  DRUPE_ASSIGN(child.shim, StartingShim::start(
                               engine_.installation_, placed ? child.held.dir.get() : child.scratch.dir.get(),
                               placed ? child.held.lock.get() : child.scratch.lock.get(), spec, pipe));
  return {};
}

bool EngineImpl::ForkChildren::landed(Child& child) {
  auto answer = child.shim->advance();
  if (!answer && Clock::now() < child.shim->deadline()) return false;
  if (!answer) answer = child.shim->finish();
  if (!*answer)
    child.status = std::unexpected(std::move(*answer).error());
  else if ((*answer)->error)
    child.status = std::unexpected(*(*answer)->error);
  double before = 0;
  if (&child == children_.data() && *answer)
    for (const auto& [stage, at] : (*answer)->timings) {
      engine_.timings_.stages.emplace_back("child " + stage, at - before);
      before = at;
    }
  engine_.children_.push_back(child.shim->take_child());
  child.shim.reset();
  child.slot = {};
  return true;
}

Result<std::vector<SandboxInfo>> EngineImpl::ForkChildren::release() {
  released_ = true;
  std::vector<SandboxInfo> started;
  std::optional<Error> first_error;
  for (Child& child : children_) {
    if (child.status) {
      engine_.tell_after_start(child.held.id, child.held.networks);
      started.push_back({std::move(child.held.record), true});
      started.back().record.state = SandboxState::kRunning;
      continue;
    }
    if (!first_error) first_error = child.status.error();
    engine_.note("The child " + called(child.held.record) +
                 " did not start: " + child.status.error().message);
    drop(child);
  }
  if (started.empty() && first_error) return std::unexpected(*std::move(first_error));
  return started;
}

}  // namespace drupe
