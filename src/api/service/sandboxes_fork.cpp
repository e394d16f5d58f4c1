// Forks: children with the parent's memory and disk.
#include "api/service/egress.h"
#include "api/service/ids.h"
#include "api/service/networks.h"
#include "api/service/operation.h"
#include "api/service/request_checks.h"
#include "api/service/sandboxes.h"

namespace drupe::api {
namespace {

constexpr std::chrono::seconds kForkWait{50};

/// The row of a child before it has an id in the engine.
SandboxRow child_of(const SandboxRow& parent, const ForkRequest& request) {
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
  return child;
}

}  // namespace

Result<SandboxView> Sandboxes::fork(const std::string& owner, const std::string& id,
                                    const ForkRequest& request) {
  DRUPE_ASSIGN(const SandboxRow parent, own_row(owner, id));
  DRUPE_ASSIGN(auto views, fork_into(parent, {1, request}, true));
  return std::move(views.front());
}

Result<std::vector<SandboxView>> Sandboxes::forks(const std::string& owner, const std::string& id,
                                                  const ForksRequest& request) {
  DRUPE_ASSIGN(const SandboxRow parent, own_row(owner, id));
  return fork_into(parent, request, false);
}

Result<std::vector<SandboxView>> Sandboxes::fork_into(const SandboxRow& parent, const ForksRequest& request,
                                                      bool only_paused) {
  const ForkRequest& each = request.each;
  if (each.envs) DRUPE_TRY(check_envs(*each.envs));
  if (each.ssh_pubkeys) DRUPE_TRY(check_keys(*each.ssh_pubkeys));
  DRUPE_ASSIGN(const NetworkOptions network,
               network_for(each.egress ? each.egress : parent.egress, settings_.open_ranges));
  DRUPE_TRY(check_isolation());
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  DRUPE_ASSIGN(const SandboxView before, look_beneath(parent, *engine));
  const State shown = before.state == State::kRunning ? State::kRunning : State::kPaused;
  DRUPE_ASSIGN(const Operation of_parent, begin_when_idle(parent.id, shown, Clock::now() + kForkWait));
  DRUPE_ASSIGN(const SandboxView now, look_beneath(parent, *engine));
  if (now.state != State::kPaused && (only_paused || now.state != State::kRunning))
    return fail(ErrorCode::kInvalidState,
                "sandbox is " + std::string(to_string(now.state)) +
                    (now.state == State::kRunning ? "; pause it before forking it" : ""));
  std::vector<SandboxRow> children;
  std::vector<std::string> ids;
  std::vector<Operation> of_children;
  const auto begun = Clock::now();
  const auto make = [&]() -> Status {
    for (std::uint32_t i = 0; i < request.count; ++i) {
      SandboxRow child = child_of(parent, each);
      DRUPE_ASSIGN(Operation of_child, begin(child.id, State::kForking));
      of_children.push_back(std::move(of_child));
      DRUPE_TRY(add_row(child, true, *engine));
      ids.push_back(child.id);
      children.push_back(std::move(child));
    }
    ForkOptions options;
    if (each.egress) options.network = network;
    options.idle_timeout_ms = 0;
    DRUPE_ASSIGN(const auto made, engine->fork(parent.engine_id, request.count, ids, options));
    for (std::size_t i = 0; i < made.size(); ++i) children.at(i).engine_id = made[i].record.id;
    for (SandboxRow& child : children) {
      DRUPE_TRY(name_in_networks(*engine, store_, child));
      if (each.ssh_pubkeys) give_keys(*engine, child, parent.ssh_pubkeys);
      if (each.start_paused) DRUPE_TRY(engine->pause(child.engine_id));
      child.phase = Phase::kLive;
      child.running_ns = now_ns();
      child.spawn_us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begun).count();
      DRUPE_TRY(store_.update_sandbox(child));
    }
    return {};
  };
  if (auto made = make(); !made) {
    for (const SandboxRow& child : children) {
      if (!child.engine_id.empty()) static_cast<void>(engine->remove(child.engine_id, true));
      static_cast<void>(store_.drop_sandbox(child.id));
    }
    return std::unexpected(std::move(made).error());
  }
  of_children.clear();
  std::vector<SandboxView> views;
  for (SandboxRow& child : children) {
    DRUPE_ASSIGN(SandboxView view, look(std::move(child), *engine));
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace drupe::api
