// Looking at sandboxes, and bringing them in line after a restart.
#include "api/service/sandboxes.h"

#include <algorithm>
#include <array>

#include "api/service/ids.h"
#include "api/service/operation.h"
#include "engine/host.h"
#include "shim/messages.h"
#include "shim/network.h"

namespace drupe::api {
namespace {

constexpr std::array kStates{"creating", "running", "pausing",    "paused",    "resuming",
                             "forking",  "error",   "destroying", "destroyed", "failed"};
constexpr std::chrono::seconds kUpdateLimit{10};

std::unexpected<Error> not_found() {
  return fail(ErrorCode::kNotFound, "sandbox not found");
}

State state_of(const SandboxInfo& info) {
  switch (info.record.state) {
    case SandboxState::kRunning:
      return State::kRunning;
    case SandboxState::kPaused:
      return State::kPaused;
    case SandboxState::kCreated:
    case SandboxState::kExited:
      break;
  }
  return State::kError;
}

}  // namespace

std::string_view to_string(State state) {
  return kStates.at(static_cast<std::size_t>(state));
}

std::optional<State> state_from(std::string_view word) {
  for (std::size_t i = 0; i < kStates.size(); ++i)
    if (word == kStates.at(i)) return static_cast<State>(i);
  return std::nullopt;
}

Result<std::string> Sandboxes::isolation() {
  const std::scoped_lock lock(mutex_);
  if (!isolation_) {
    DRUPE_ASSIGN(const Home home, Home::open(settings_.home));
    DRUPE_ASSIGN(const Host host, find_host(home, false));
    isolation_ = host.isolation();
  }
  return *isolation_;
}

Status Sandboxes::check_isolation() {
  if (settings_.accept_emulation) return {};
  DRUPE_ASSIGN(const std::string found, isolation());
  if (found == "hardware-virtualized") return {};
  return fail(ErrorCode::kPermission,
              "this machine can run sandboxes only under software emulation, without hardware isolation; its "
              "operator has not accepted that (accept_emulation = true, or --accept-emulation)");
}

Result<Sandboxes::Operation> Sandboxes::begin(const std::string& id, State shown) {
  return begin_when_idle(id, shown, Clock::now());
}

Result<Sandboxes::Operation> Sandboxes::begin_when_idle(const std::string& id, State shown,
                                                        Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!idle_.wait_until(lock, deadline, [&] { return !operations_.contains(id); }))
    return fail(ErrorCode::kInvalidState, "sandbox is " + std::string(to_string(operations_.at(id))));
  operations_[id] = shown;
  return Operation(*this, id);
}

Result<SandboxRow> Sandboxes::own_row(const std::string& owner, const std::string& id) {
  if (!is_sandbox_id(id)) return not_found();
  DRUPE_ASSIGN(auto row, store_.find_sandbox(id));
  if (!row || row->owner != owner) return not_found();
  const bool ended = row->phase == Phase::kDestroyed || row->phase == Phase::kFailed;
  const std::int64_t kept = std::chrono::nanoseconds(settings_.retention).count();
  if (ended && row->destroyed_ns.value_or(row->created_ns) + kept < now_ns()) return not_found();
  return *std::move(row);
}

Status Sandboxes::mark_ended(SandboxRow& row, Phase phase) {
  row.phase = phase;
  row.destroyed_ns = now_ns();
  const bool had_secrets = !row.envs.empty();
  row.envs.clear();
  if (on_gone_) on_gone_(row.id);
  DRUPE_TRY(store_.update_sandbox(row));
  return had_secrets ? store_.forget_overwritten() : Status();
}

Result<SandboxView> Sandboxes::look(SandboxRow row, Engine& engine) {
  std::optional<State> shown;
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = operations_.find(row.id); found != operations_.end()) shown = found->second;
  }
  DRUPE_ASSIGN(SandboxView view, look_beneath(std::move(row), engine));
  const bool living = view.row.phase == Phase::kCreating || view.row.phase == Phase::kLive;
  if (living && shown) view.state = *shown;
  return view;
}

Result<SandboxView> Sandboxes::look_beneath(SandboxRow row, Engine& engine) {
  SandboxView view;
  view.row = std::move(row);
  switch (view.row.phase) {
    case Phase::kDestroyed:
      view.state = State::kDestroyed;
      return view;
    case Phase::kFailed:
      view.state = State::kFailed;
      return view;
    case Phase::kDestroying:
      view.state = State::kDestroying;
      return view;
    case Phase::kCreating:
      view.state = State::kCreating;
      return view;
    case Phase::kLive:
      break;
  }
  const auto info = engine.find(view.row.engine_id);
  if (!info) {
    if (info.error().code != ErrorCode::kNotFound) return std::unexpected(info.error());
    // Removed by the operator's own hand; or by an operation that has just ended.
    DRUPE_ASSIGN(auto again, store_.find_sandbox(view.row.id));
    if (!again) return not_found();
    view.row = *std::move(again);
    if (view.row.phase == Phase::kLive) DRUPE_TRY(mark_ended(view.row, Phase::kDestroyed));
    view.state = view.row.phase == Phase::kDestroying ? State::kDestroying : State::kDestroyed;
    return view;
  }
  view.state = state_of(*info);
  view.ip = inner::kGuestV4;
  if (info->record.paused_ns != 0) view.paused_ns = info->record.paused_ns;
  return view;
}

Result<SandboxView> Sandboxes::look(SandboxRow row) {
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  return look(std::move(row), *engine);
}

Status Sandboxes::require(const SandboxView& view, State state, std::string_view to_do) {
  if (view.state == state) return {};
  if (view.state == State::kPaused)
    return fail(ErrorCode::kInvalidState, "sandbox is paused; resume it before " + std::string(to_do));
  return fail(ErrorCode::kInvalidState, "sandbox is " + std::string(to_string(view.state)) + "; " +
                                            std::string(to_do) + " needs one that is " +
                                            std::string(to_string(state)));
}

Result<SandboxView> Sandboxes::find(const std::string& owner, const std::string& id) {
  DRUPE_ASSIGN(SandboxRow row, own_row(owner, id));
  return look(std::move(row));
}

Result<std::vector<SandboxView>> Sandboxes::list(const std::string& owner) {
  DRUPE_TRY(store_.purge_sandboxes(now_ns() - std::chrono::nanoseconds(settings_.retention).count()));
  DRUPE_ASSIGN(auto rows, store_.list_sandboxes(owner));
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  std::vector<SandboxView> views;
  for (SandboxRow& row : rows) {
    auto view = look(std::move(row), *engine);
    if (view)
      views.push_back(*std::move(view));
    else if (view.error().code != ErrorCode::kNotFound)
      return std::unexpected(std::move(view).error());
  }
  return views;
}

Result<Sandboxes::Access> Sandboxes::access(const std::string& owner, const std::string& id,
                                            std::string_view to_do) {
  DRUPE_ASSIGN(SandboxRow row, own_row(owner, id));
  DRUPE_ASSIGN(auto engine, engines_.lease());
  DRUPE_ASSIGN(SandboxView view, look(std::move(row), *engine));
  DRUPE_TRY(require(view, State::kRunning, to_do));
  DRUPE_ASSIGN(auto client, engine->connect(view.row.engine_id, false));
  return Access(std::move(engine), std::move(view.row), std::move(client));
}

Result<Sandboxes::Access> Sandboxes::ingress(const std::string& id) {
  DRUPE_ASSIGN(auto row, store_.find_sandbox(id));
  if (!row || !row->ingress || row->phase != Phase::kLive) return not_found();
  const std::string owner = row->owner;
  return access(owner, id, "using its address");
}

Result<Sandboxes::Place> Sandboxes::place(const std::string& owner, const std::string& id,
                                          std::string_view to_do) {
  DRUPE_ASSIGN(SandboxRow row, own_row(owner, id));
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  DRUPE_ASSIGN(SandboxView view, look(std::move(row), *engine));
  DRUPE_TRY(require(view, State::kRunning, to_do));
  DRUPE_ASSIGN(UniqueFd directory, engine->open_directory(view.row.engine_id));
  return Place{std::move(view.row), std::move(directory)};
}

Status Sandboxes::set_idle_timeout(Engine& engine, const SandboxRow& row) {
  DRUPE_ASSIGN(const auto client, engine.connect(row.engine_id, false));
  UpdateRequest update;
  update.idle_timeout_ms = static_cast<std::uint64_t>(row.auto_pause_s.value_or(0)) * 1000;
  update.valid_until_ns = monotonic_ns(Clock::now() + kUpdateLimit);
  DRUPE_TRY(client->call(static_cast<std::uint16_t>(ShimRequest::kUpdate), update.encode(),
                         Clock::now() + kUpdateLimit));
  return {};
}

Status Sandboxes::reconcile_row(SandboxRow row, Engine& engine) {
  switch (row.phase) {
    case Phase::kDestroyed:
    case Phase::kFailed:
      return {};
    case Phase::kCreating:
    case Phase::kDestroying: {
      // Nobody was told of one that was being made: it goes. Its name in the engine is its id.
      const auto left = engine.find(row.engine_id.empty() ? row.id : row.engine_id);
      if (left) DRUPE_TRY(engine.remove(left->record.id, true));
      return mark_ended(row, row.phase == Phase::kCreating ? Phase::kFailed : Phase::kDestroyed);
    }
    case Phase::kLive:
      break;
  }
  const auto info = engine.find(row.engine_id);
  if (!info) return info.error().code == ErrorCode::kNotFound ? mark_ended(row, Phase::kDestroyed) : Status{};
  const auto wanted = static_cast<std::uint64_t>(row.auto_pause_s.value_or(0)) * 1000;
  if (info->alive && info->record.state == SandboxState::kRunning && info->record.idle_timeout_ms != wanted)
    DRUPE_TRY(set_idle_timeout(engine, row));
  return {};
}

Status Sandboxes::reconcile() {
  DRUPE_ASSIGN(auto rows, store_.list_sandboxes(""));
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  std::optional<Error> first;
  for (SandboxRow& row : rows) {
    const std::string id = row.id;
    if (auto done = reconcile_row(std::move(row), *engine); !done && !first)
      first = std::move(done).error().in(id);
  }
  if (first) return std::unexpected(*std::move(first));
  return {};
}

}  // namespace drupe::api
