// Operations that change a sandbox's life.
#include <algorithm>
#include <thread>

#include "api/service/egress.h"
#include "api/service/ids.h"
#include "api/service/networks.h"
#include "api/service/operation.h"
#include "api/service/request_checks.h"
#include "api/service/sandboxes.h"
#include "api/service/shapes.h"
#include "base/log.h"
#include "engine/names.h"

namespace drupe::api {
namespace {

/// A client gives up deleting after half a minute.
constexpr std::chrono::seconds kDestroyWait{20};
/// For an image that is being prepared; clients give up after a minute.
constexpr std::chrono::seconds kPrepareWait{40};

bool is_terminal(State state) {
  return state == State::kDestroyed || state == State::kFailed;
}

}  // namespace

std::string made_up_name() {
  std::string name = invent_name();
  std::ranges::replace(name, '_', '-');
  return name;
}

Result<SandboxRow> Sandboxes::new_row(const std::string& owner, const CreateRequest& request) {
  const auto shape = find_shape(request.shape);
  if (!shape) {
    std::string choices;
    for (const Shape& one : shapes()) choices += (choices.empty() ? "" : " ") + std::string(one.id);
    return fail(ErrorCode::kInvalidArgument,
                "shape \"" + request.shape + "\" is not known; choices: [" + choices + "]");
  }
  if (request.name) DRUPE_TRY(check_name_word(*request.name));
  DRUPE_TRY(check_envs(request.envs));
  DRUPE_TRY(check_keys(request.ssh_pubkeys));
  if (request.disk_mib > settings_.most_disk_mib)
    return fail(ErrorCode::kPermission,
                "disk_mib is not allowed to be more than " + std::to_string(settings_.most_disk_mib));
  SandboxRow row;
  row.id = make_id("sb-");
  row.owner = owner;
  row.name = request.name.value_or("");
  row.shape = request.shape;
  row.rootfs = request.rootfs.value_or(settings_.default_rootfs);
  row.vcpu = vcpus_here(*shape, std::thread::hardware_concurrency());
  row.mem_mib = shape->mem_mib;
  row.disk_mib = request.disk_mib == 0 ? kDefaultDiskMib : request.disk_mib;
  row.egress = request.egress;
  row.envs = request.envs;
  add_keys(row.ssh_pubkeys, request.ssh_pubkeys);
  row.ingress = request.ingress;
  row.auto_pause_s = request.auto_pause_s;
  row.created_ns = now_ns();
  return row;
}

Result<SandboxView> Sandboxes::create(const std::string& owner, const CreateRequest& request) {
  DRUPE_TRY(check_isolation());
  DRUPE_ASSIGN(SandboxRow row, new_row(owner, request));
  DRUPE_ASSIGN(const NetworkOptions network, network_for(request.egress, settings_.open_ranges));
  DRUPE_ASSIGN(const Image image, rootfs_.resolve(owner, row.rootfs, Clock::now() + kPrepareWait));
  if (request.disk_mib == 0)
    row.disk_mib = std::max(row.disk_mib, static_cast<std::int64_t>(image.virtual_bytes >> 20));
  DRUPE_ASSIGN(Operation operation, begin(row.id, State::kCreating));
  {
    DRUPE_ASSIGN(const auto engine, engines_.lease());
    DRUPE_TRY(add_row(row, !request.name, *engine));
  }
  auto view = start_new(row, request, network, image);
  if (!view) static_cast<void>(store_.drop_sandbox(row.id));
  return view;
}

Result<SandboxView> Sandboxes::start_new(SandboxRow row, const CreateRequest& request,
                                         const NetworkOptions& network, const Image& image) {
  const auto begun = Clock::now();
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  SandboxOptions options;
  options.image = image.names.empty() ? "sha256:" + image.id : image.names.front();
  options.name = row.id;
  options.hostname = row.name;
  options.idle = true;
  options.detached = true;
  options.self_control = true;
  options.cpus = cpus_here(*find_shape(row.shape), std::thread::hardware_concurrency());
  options.memory_mib = static_cast<std::uint64_t>(row.mem_mib);
  options.disk_bytes = static_cast<std::uint64_t>(row.disk_mib) << 20;
  options.idle_timeout_ms = static_cast<std::uint64_t>(request.auto_pause_s.value_or(0)) * 1000;
  options.network = network;
  options.pull = PullPolicy::kNever;
  std::optional<SandboxInfo> info;
  if (request.networks.empty()) {
    DRUPE_ASSIGN(info, claim(*engine, options, row));
  }
  const bool claimed = info.has_value();
  if (!claimed) {
    DRUPE_ASSIGN(info, engine->create(options));
  }
  row.engine_id = info->record.id;
  Status started = store_.update_sandbox(row);
  for (const NetworkRow& one : request.networks)
    if (started) started = join_network(*engine, one, row);
  if (started && !claimed) {
    if (auto timings = engine->start(row.engine_id, false, false); !timings)
      started = std::unexpected(std::move(timings).error());
    else
      for (const auto& [stage, ms] : timings->stages) metrics_.observe_stage(stage, ms);
  }
  row.phase = Phase::kLive;
  row.running_ns = now_ns();
  row.spawn_us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begun).count();
  if (started) started = store_.update_sandbox(row);
  if (started) metrics_.observe_stage("total", static_cast<double>(*row.spawn_us) / 1000);
  if (!started) {
    if (auto removed = engine->remove(row.engine_id, true); !removed)
      log(LogLevel::kError, "A sandbox that did not start could not be removed: " + removed.error().message);
    return std::unexpected(std::move(started).error());
  }
  SandboxView view;
  view.row = std::move(row);
  view.state = State::kRunning;
  DRUPE_ASSIGN(SandboxView looked, look(view.row, *engine));
  view.ip = looked.ip;
  give_keys(*engine, view.row, {});
  return view;
}

Result<SandboxView> Sandboxes::patch(const std::string& owner, const std::string& id,
                                     const PatchRequest& request) {
  DRUPE_ASSIGN(SandboxRow row, own_row(owner, id));
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  DRUPE_ASSIGN(SandboxView view, look(std::move(row), *engine));
  if (is_terminal(view.state) || view.state == State::kDestroying || view.state == State::kError)
    return fail(ErrorCode::kInvalidState, "sandbox is " + std::string(to_string(view.state)));
  SandboxRow& changed = view.row;
  if (request.ingress) changed.ingress = *request.ingress;
  const auto before = changed.auto_pause_s;
  if (request.auto_pause_s) changed.auto_pause_s = request.auto_pause_s;
  if (request.disable_auto_pause) changed.auto_pause_s.reset();
  if (changed.auto_pause_s != before && view.state == State::kRunning)
    DRUPE_TRY(set_idle_timeout(*engine, changed));
  DRUPE_TRY(store_.update_sandbox(changed));
  return view;
}

Result<SandboxView> Sandboxes::destroy(const std::string& owner, const std::string& id) {
  return end_if(owner, id, {});
}

Result<SandboxView> Sandboxes::end_if(const std::string& owner, const std::string& id,
                                      const Condition& wanted) {
  DRUPE_ASSIGN(SandboxRow row, own_row(owner, id));
  if (row.phase == Phase::kDestroyed || row.phase == Phase::kFailed) {
    SandboxView view;
    view.row = std::move(row);
    view.state = State::kDestroyed;
    return view;
  }
  auto operation = begin_when_idle(id, State::kDestroying, Clock::now() + kDestroyWait);
  if (!operation) return std::unexpected(std::move(operation).error());
  // What the operation before has made of it.
  DRUPE_ASSIGN(row, own_row(owner, id));
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  if (wanted) {
    DRUPE_ASSIGN(SandboxView view, look_beneath(row, *engine));
    if (!wanted(view)) return view;
  }
  if (row.phase == Phase::kLive || row.phase == Phase::kDestroying) {
    row.phase = Phase::kDestroying;  // its name is free from here on
    DRUPE_TRY(store_.update_sandbox(row));
    if (auto removed = engine->remove(row.engine_id, true);
        !removed && removed.error().code != ErrorCode::kNotFound)
      return std::unexpected(std::move(removed).error());
    DRUPE_TRY(mark_ended(row, Phase::kDestroyed));
  }
  SandboxView view;
  view.row = std::move(row);
  view.state = State::kDestroyed;
  return view;
}

Result<SandboxView> Sandboxes::pause(const std::string& owner, const std::string& id) {
  DRUPE_ASSIGN(const SandboxRow row, own_row(owner, id));
  {
    DRUPE_ASSIGN(const SandboxView before, look(row));
    DRUPE_TRY(require(before, State::kRunning, "pausing it"));
  }
  DRUPE_ASSIGN(Operation operation, begin(id, State::kPausing));
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  DRUPE_TRY(engine->pause(row.engine_id));
  operation.end();
  return look(row, *engine);
}

Result<SandboxView> Sandboxes::resume(const std::string& owner, const std::string& id) {
  DRUPE_ASSIGN(SandboxRow row, own_row(owner, id));
  {
    DRUPE_ASSIGN(const SandboxView before, look(row));
    DRUPE_TRY(require(before, State::kPaused, "resuming it"));
  }
  DRUPE_TRY(check_isolation());
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  std::unique_lock quota_lock(quota_mutex_);
  DRUPE_TRY(check_room(owner, {0, row.vcpu, row.mem_mib, 0}, *engine));
  DRUPE_ASSIGN(Operation operation, begin(id, State::kResuming));
  quota_lock.unlock();
  DRUPE_TRY(engine->resume(row.engine_id, false));
  row.resumed_ns = row.running_ns = now_ns();
  DRUPE_TRY(store_.update_sandbox(row));
  DRUPE_TRY(reconcile_row(row, *engine));  // what was changed while it slept
  give_keys(*engine, row, {});
  operation.end();
  return look(std::move(row), *engine);
}

Result<SandboxView> Sandboxes::set_egress(const std::string& owner, const std::string& id,
                                          const std::optional<std::vector<std::string>>& egress) {
  DRUPE_ASSIGN(SandboxRow row, own_row(owner, id));
  DRUPE_ASSIGN(const NetworkOptions network, network_for(egress, settings_.open_ranges));
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  DRUPE_ASSIGN(SandboxView view, look(std::move(row), *engine));
  if (view.state != State::kRunning && view.state != State::kPaused)
    return fail(ErrorCode::kInvalidState, "sandbox is " + std::string(to_string(view.state)));
  DRUPE_TRY(engine->set_network(view.row.engine_id, network));
  view.row.egress = egress;
  DRUPE_TRY(store_.update_sandbox(view.row));
  return view;
}

}  // namespace drupe::api
