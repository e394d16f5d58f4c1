// Operations that change a sandbox's life.
#include <algorithm>
#include <thread>

#include "api/service/egress.h"
#include "api/service/ids.h"
#include "api/service/networks.h"
#include "api/service/operation.h"
#include "api/service/sandboxes.h"
#include "api/service/shapes.h"
#include "base/log.h"
#include "engine/names.h"

namespace drupe::api {
namespace {

constexpr std::size_t kMostEnvs = 64, kMostEnvValue = 4096, kMostEnvBytes = 64 * 1024;
constexpr std::size_t kMostKeys = 64, kMostKeyBytes = 16 * 1024;
/// A client gives up deleting after half a minute.
constexpr std::chrono::seconds kDestroyWait{20};
constexpr std::chrono::seconds kForkWait{50};
/// For an image that is being prepared; clients give up after a minute.
constexpr std::chrono::seconds kPrepareWait{40};

Status check_envs(const std::map<std::string, std::string>& envs) {
  if (envs.size() > kMostEnvs) return fail(ErrorCode::kInvalidArgument, "envs has more than 64 entries");
  std::size_t total = 0;
  for (const auto& [name, value] : envs) {
    const auto word = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    if (name.empty() || (name.front() >= '0' && name.front() <= '9') || !std::ranges::all_of(name, word))
      return fail(ErrorCode::kInvalidArgument,
                  "envs has a name that is none: letters, digits and '_' make one");
    if (value.size() > kMostEnvValue)
      return fail(ErrorCode::kInvalidArgument, "the value of envs." + name + " is longer than 4096 bytes");
    if (value.find('\0') != std::string::npos)
      return fail(ErrorCode::kInvalidArgument, "the value of envs." + name + " has a zero byte");
    total += name.size() + value.size();
  }
  if (total > kMostEnvBytes) return fail(ErrorCode::kInvalidArgument, "envs is longer than 64 KiB");
  return {};
}

Status check_keys(const std::vector<std::string>& keys) {
  if (keys.size() > kMostKeys) return fail(ErrorCode::kInvalidArgument, "there are more than 64 SSH keys");
  for (const std::string& key : keys) {
    const auto space = key.find(' ');
    const bool kind = key.starts_with("ssh-") || key.starts_with("ecdsa-") || key.starts_with("sk-");
    const bool line = std::ranges::none_of(key, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
    if (!kind || !line || space == std::string::npos || key.size() > kMostKeyBytes ||
        key.substr(space + 1).find_first_not_of(' ') == std::string::npos)
      return fail(ErrorCode::kInvalidArgument, "ssh_pubkeys has a line that is no OpenSSH public key");
  }
  return {};
}

bool is_terminal(State state) {
  return state == State::kDestroyed || state == State::kFailed;
}

void add_keys(std::vector<std::string>& known, const std::vector<std::string>& keys) {
  for (const std::string& key : keys)
    if (std::ranges::find(known, key) == known.end()) known.push_back(key);
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
  options.cpus = cpus_here(*find_shape(row.shape), std::thread::hardware_concurrency());
  options.memory_mib = static_cast<std::uint64_t>(row.mem_mib);
  options.disk_bytes = static_cast<std::uint64_t>(row.disk_mib) << 20;
  options.idle_timeout_ms = static_cast<std::uint64_t>(request.auto_pause_s.value_or(0)) * 1000;
  options.network = network;
  options.pull = PullPolicy::kNever;
  DRUPE_ASSIGN(const SandboxInfo info, engine->create(options));
  row.engine_id = info.record.id;
  Status started = store_.update_sandbox(row);
  for (const NetworkRow& one : request.networks)
    if (started) started = join_network(*engine, one, row);
  if (started) {
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
  operation.end();
  return look(std::move(row), *engine);
}

Result<SandboxView> Sandboxes::fork(const std::string& owner, const std::string& id,
                                    const ForkRequest& request) {
  DRUPE_ASSIGN(const SandboxRow parent, own_row(owner, id));
  if (request.envs) DRUPE_TRY(check_envs(*request.envs));
  if (request.ssh_pubkeys) DRUPE_TRY(check_keys(*request.ssh_pubkeys));
  DRUPE_ASSIGN(const NetworkOptions network,
               network_for(request.egress ? request.egress : parent.egress, settings_.open_ranges));
  DRUPE_TRY(check_isolation());
  DRUPE_ASSIGN(const Operation of_parent, begin_when_idle(id, State::kPaused, Clock::now() + kForkWait));
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  {
    DRUPE_ASSIGN(const SandboxInfo info, engine->find(parent.engine_id));
    if (info.record.state != SandboxState::kPaused)
      return fail(ErrorCode::kInvalidState, "sandbox is " +
                                                std::string(info.alive ? "running" : "not running") +
                                                "; pause it before forking it");
  }
  SandboxRow child = parent;
  child.id = make_id("sb-");
  child.engine_id.clear();
  child.phase = Phase::kCreating;
  child.forked_from = parent.id;
  child.created_ns = now_ns();
  child.running_ns.reset();
  child.resumed_ns.reset();
  child.auto_pause_s.reset();
  if (request.egress) child.egress = request.egress;
  if (request.envs && !request.envs->empty()) child.envs = *request.envs;
  if (request.ssh_pubkeys) child.ssh_pubkeys = *request.ssh_pubkeys;
  if (request.ingress) child.ingress = *request.ingress;
  DRUPE_ASSIGN(const Operation of_child, begin(child.id, State::kForking));
  DRUPE_TRY(add_row(child, true, *engine));
  const auto begun = Clock::now();
  const auto make = [&]() -> Status {
    ForkOptions options;
    if (request.egress) options.network = network;
    options.idle_timeout_ms = 0;
    DRUPE_ASSIGN(const auto children, engine->fork(parent.engine_id, 1, {child.id}, options));
    child.engine_id = children.front().record.id;
    DRUPE_TRY(name_in_networks(*engine, store_, child));
    if (request.start_paused) DRUPE_TRY(engine->pause(child.engine_id));
    child.phase = Phase::kLive;
    child.running_ns = now_ns();
    child.spawn_us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begun).count();
    return store_.update_sandbox(child);
  };
  if (auto made = make(); !made) {
    if (!child.engine_id.empty()) static_cast<void>(engine->remove(child.engine_id, true));
    static_cast<void>(store_.drop_sandbox(child.id));
    return std::unexpected(std::move(made).error());
  }
  SandboxView view;
  view.row = std::move(child);
  view.state = request.start_paused ? State::kPaused : State::kRunning;
  DRUPE_ASSIGN(const SandboxInfo info, engine->find(view.row.engine_id));
  if (info.record.paused_ns != 0) view.paused_ns = info.record.paused_ns;
  DRUPE_ASSIGN(const SandboxView of_parent_view, look(parent, *engine));
  view.ip = of_parent_view.ip;
  return view;
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

Result<SandboxView> Sandboxes::add_ssh_pubkeys(const std::string& owner, const std::string& id,
                                               const std::vector<std::string>& keys) {
  DRUPE_TRY(check_keys(keys));
  DRUPE_ASSIGN(SandboxRow row, own_row(owner, id));
  DRUPE_ASSIGN(SandboxView view, look(std::move(row)));
  if (view.state != State::kRunning && view.state != State::kPaused)
    return fail(ErrorCode::kInvalidState, "sandbox is " + std::string(to_string(view.state)));
  add_keys(view.row.ssh_pubkeys, keys);
  DRUPE_TRY(check_keys(view.row.ssh_pubkeys));
  DRUPE_TRY(store_.update_sandbox(view.row));
  return view;
}

}  // namespace drupe::api
