#include <algorithm>
#include <thread>

#include <poll.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/ids.h"
#include "engine/engine_impl.h"
#include "engine/file_lock.h"
#include "engine/names.h"
#include "engine/sandbox_files.h"

namespace drupe {
namespace {

constexpr std::uint32_t kMostChildren = 64;
constexpr std::chrono::seconds kSnapshotLimit{120};
constexpr std::chrono::minutes kQueueWait{10};
constexpr int kLinkTries = 2;
constexpr int kSlotPollMs = 3;
constexpr int kStatusPollMs = 1000;

std::string called(const SandboxRecord& record) {
  return record.name.empty() ? record.id : record.name;
}

}  // namespace

/// What children are made from: the parent's files as they were at one moment.
struct EngineImpl::ForkSource {
  UniqueFd dir;
  UniqueFd lock;  ///< Held while a paused parent's files are linked; else invalid.
  SandboxRecord parent;
  SavedState saved;
  std::vector<std::string> disk_chain;
  bool own_files = false;  ///< The saved files exist only for this fork.

  ForkSource() = default;
  ForkSource(ForkSource&&) = default;
  ForkSource& operator=(ForkSource&&) = delete;
  /// The parent goes on without the files of the save; the children have links.
  ~ForkSource() {
    if (!own_files) return;
    for (const std::string& name :
         {saved.delta_file, saved.extents_file, saved.device_state_file, saved.flows_file})
      if (!name.empty()) ::unlinkat(dir.get(), name.c_str(), 0);
  }
};

Result<EngineImpl::ForkSource> EngineImpl::fork_source(const std::string& id) {
  ForkSource source;
  DRUPE_ASSIGN(const SandboxInfo info, look_at(id));
  if (info.record.state == SandboxState::kPaused) {
    DRUPE_ASSIGN(Held held, hold(id));
    if (held.record.state == SandboxState::kPaused && held.record.saved) {
      source.saved = *held.record.saved;
      source.disk_chain = held.record.disk_chain;
      source.parent = std::move(held.record);
      source.dir = std::move(held.dir);
      source.lock = std::move(held.lock);
      return source;
    }
  }
  DRUPE_ASSIGN(const auto client, connect_running(id));
  DRUPE_ASSIGN(source.dir, home_.open_sandbox(id));
  DRUPE_ASSIGN(const std::string body,
               client->call(static_cast<std::uint16_t>(ShimRequest::kSnapshot), SnapshotRequest().encode(),
                            Clock::now() + kSnapshotLimit));
  DRUPE_ASSIGN(SnapshotReply reply, SnapshotReply::decode(as_bytes(body)));
  source.saved = std::move(reply.saved);
  source.disk_chain = std::move(reply.disk_chain);
  source.own_files = true;
  timings_.stages.emplace_back("parent stopped", reply.stopped_ms);
  DRUPE_ASSIGN(source.parent, read_own_record(source.dir.get(), id));
  return source;
}

Result<EngineImpl::Held> EngineImpl::make_child(const ForkSource& source, const std::string& name,
                                                const ForkOptions& options,
                                                const std::optional<NetworkRecord>& network) {
  DRUPE_ASSIGN(Home::Scratch scratch, home_.make_scratch("fork"));
  SandboxRecord record = source.parent;
  record.id = random_id();
  record.name = name;
  record.parent_id = source.parent.id;
  record.hostname = source.parent.hostname == source.parent.id ? record.id : source.parent.hostname;
  record.machine_id = to_hex(random_bytes(16));
  record.state = SandboxState::kCreated;
  record.saved = source.saved;
  record.disk_chain = source.disk_chain;
  if (network) record.network = *network;
  if (options.idle_timeout_ms) record.idle_timeout_ms = *options.idle_timeout_ms;
  record.network.publications.clear();  // A port leads to one sandbox, and the parent has it.
  record.detached = true;
  record.auto_remove = false;
  record.created_ns = realtime_ns();
  record.started_ns = record.finished_ns = record.paused_ns = 0;
  Status made;
  for (const std::string& file : needed_files(record))
    if (made) made = link_file(source.dir.get(), file, scratch.dir.get(), file);
  add_disk_node(record);
  if (made) made = publish(scratch, record);
  if (!made) {
    static_cast<void>(home_.discard(scratch.path));
    return std::unexpected(
        std::move(made).error().in("Making a child of " + called(source.parent) + " failed"));
  }
  Held child;
  child.id = record.id;
  child.record = std::move(record);
  child.dir = std::move(scratch.dir);
  child.lock = std::move(scratch.lock);
  return child;
}

void EngineImpl::drop_child(Held& child) {
  child.lock.reset();
  static_cast<void>(remove(child.id, true));
}

/// Starts children side by side, as many at once as there are start slots.
class EngineImpl::ChildStarter {
 public:
  ChildStarter(EngineImpl& engine, std::vector<Held> children) : engine_(engine) {
    for (Held& child : children) results_.emplace_back(std::move(child), Status());
  }

  std::vector<std::pair<Held, Status>> run() {
    while (next_ < results_.size() || !flights_.empty()) {
      const bool waits_for_slot = next_ < results_.size() && !start_next();
      if (next_ < results_.size() && !waits_for_slot) continue;
      std::vector<pollfd> entries;
      for (const Flight& flight : flights_) entries.push_back({flight.shim.status_fd(), POLLIN, 0});
      ::poll(entries.data(), entries.size(), waits_for_slot ? kSlotPollMs : kStatusPollMs);
      std::erase_if(flights_, [this](Flight& flight) { return landed(flight); });
    }
    return std::move(results_);
  }

 private:
  struct Flight {
    std::size_t index;
    StartingShim shim;
    StartSlot slot;
  };

  /// False when it has to wait for a slot; else the next one has been started or has failed.
  bool start_next() {
    auto slot = flights_.empty() ? StartSlot::take(engine_.home_, Clock::now() + kQueueWait)
                                 : StartSlot::try_take(engine_.home_);
    if (slot && !slot->valid()) return false;
    const std::size_t index = next_++;
    results_[index].second =
        slot ? start(index, std::move(*slot)) : Status(std::unexpected(std::move(slot).error()));
    return true;
  }

  Status start(std::size_t index, StartSlot slot) {
    Held& child = results_[index].first;
    DRUPE_TRY(promise_memory(engine_.home_, child.id, child.record.shape.memory_mib));
    DRUPE_ASSIGN(
        StartingShim shim,
        StartingShim::start(engine_.installation_, child.dir.get(), child.lock.get(),
                            engine_.spec_for(child, {.mode = LaunchMode::kForkChild}, *engine_.host_)));
    child.lock.reset();  // the shim's alone from here on
    failpoint("engine.fork.spawned");
    flights_.push_back({index, std::move(shim), std::move(slot)});
    return {};
  }

  bool landed(Flight& flight) {
    auto answer = flight.shim.advance();
    if (!answer && Clock::now() < flight.shim.deadline()) return false;
    if (!answer) answer = flight.shim.finish();
    Status& status = results_[flight.index].second;
    if (!*answer)
      status = std::unexpected(std::move(*answer).error());
    else if ((*answer)->error)
      status = std::unexpected(*(*answer)->error);
    engine_.children_.push_back(flight.shim.take_child());
    return true;
  }

  EngineImpl& engine_;
  std::vector<std::pair<Held, Status>> results_;
  std::vector<Flight> flights_;
  std::size_t next_ = 0;
};

Result<std::vector<EngineImpl::Held>> EngineImpl::make_children(const std::string& id, std::uint32_t count,
                                                                const std::vector<std::string>& names,
                                                                const ForkOptions& options,
                                                                StageClock& clock) {
  // Before the parent is stopped for nothing.
  for (const std::string& name : names) DRUPE_TRY(check_free_name(home_, name, {}));
  std::optional<NetworkRecord> network;
  if (options.network) {
    if (!options.network->publish.empty())
      return fail(ErrorCode::kUnsupported, "Ports are published when a sandbox is made");
    DRUPE_ASSIGN(network, checked_network(*options.network));
  }
  DRUPE_ASSIGN(const ForkSource source, fork_source(id));
  clock.mark("snapshot");
  failpoint("engine.fork.snapshot");
  DRUPE_TRY(require_fitting_memory(source.parent));
  std::vector<Held> children;
  for (std::uint32_t i = 0; i < count; ++i) {
    auto child = make_child(source, names.empty() ? std::string() : names[i], options, network);
    if (!child) {
      for (Held& made : children) drop_child(made);
      return std::unexpected(std::move(child).error());
    }
    children.push_back(std::move(*child));
  }
  return children;
}

Result<std::vector<SandboxInfo>> EngineImpl::fork(const std::string& id, std::uint32_t count,
                                                  const std::vector<std::string>& names,
                                                  const ForkOptions& options) {
  timings_ = {};
  StageClock clock(timings_);
  reap_children();
  if (count < 1 || count > kMostChildren)
    return fail(ErrorCode::kInvalidArgument, "A fork makes 1 to 64 children, not " + std::to_string(count));
  if (!names.empty() && names.size() != count)
    return fail(ErrorCode::kInvalidArgument,
                std::to_string(names.size()) + " names do not fit " + std::to_string(count) + " children");
  for (const std::string& name : names) DRUPE_TRY(check_name(name));
  DRUPE_TRY(host());

  auto made = make_children(id, count, names, options, clock);
  // The parent's shim shortens its disk chain when it likes: nodes may go between its answer and our links.
  for (int i = 0; !made && made.error().code == ErrorCode::kNotFound && i < kLinkTries; ++i)
    made = make_children(id, count, names, options, clock);
  DRUPE_ASSIGN(std::vector<Held> children, std::move(made));
  std::vector<std::string> ids;
  for (const Held& child : children) ids.push_back(child.id);
  auto joined = join_forked(id, ids);
  for (Held& child : children) {
    if (!joined) break;
    auto networks = networks_of(home_, child.id);
    if (networks)
      child.networks = std::move(*networks);
    else
      joined = std::unexpected(std::move(networks).error());
  }
  if (!joined) {
    for (Held& child : children) drop_child(child);
    return std::unexpected(std::move(joined).error());
  }
  clock.mark("files");
  failpoint("engine.fork.placed");
  auto results = ChildStarter(*this, std::move(children)).run();
  clock.mark("children");
  std::vector<SandboxInfo> started;
  std::optional<Error> first_error;
  for (auto& [child, status] : results) {
    if (status) {
      tell_after_start(child.id, child.networks);
      started.push_back({std::move(child.record), true});
      started.back().record.state = SandboxState::kRunning;
      continue;
    }
    drop_child(child);
    if (!first_error) first_error = status.error();
    note("The child " + called(child.record) + " did not start: " + status.error().message);
  }
  if (started.empty() && first_error) return std::unexpected(*std::move(first_error));
  return started;
}

}  // namespace drupe
