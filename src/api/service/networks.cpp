#include "api/service/networks.h"

#include <algorithm>

#include "api/service/ids.h"

namespace drupe::api {
namespace {

std::unexpected<Error> not_found() {
  return fail(ErrorCode::kNotFound, "network not found");
}

/// Clients find a member by NAME.fc.local and NAME.NETWORK.fc.local; in the engine both have other names.
std::vector<std::string> aliases_of(const SandboxRow& sandbox, const NetworkRow& network) {
  return {sandbox.name, sandbox.name + "." + network.name};
}

}  // namespace

Status join_network(Engine& engine, const NetworkRow& network, const SandboxRow& sandbox) {
  const auto aliases = aliases_of(sandbox, network);
  auto joined = engine.connect_network(network.id, sandbox.engine_id, aliases);
  if (joined || joined.error().code != ErrorCode::kNotFound) return joined;
  if (auto made = engine.create_private_network(network.id);
      !made && made.error().code != ErrorCode::kAlreadyExists)
    return std::unexpected(std::move(made).error());
  return engine.connect_network(network.id, sandbox.engine_id, aliases);
}

Status name_in_networks(Engine& engine, Store& store, const SandboxRow& sandbox) {
  DRUPE_ASSIGN(const auto networks, engine.private_networks());
  for (const NetworkInfo& one : networks) {
    if (std::ranges::find(one.members, sandbox.engine_id, &NetworkInfo::Member::sandbox) == one.members.end())
      continue;
    DRUPE_ASSIGN(const auto row, store.find_network(one.name));
    if (row && row->owner == sandbox.owner)
      DRUPE_TRY(engine.connect_network(one.name, sandbox.engine_id, aliases_of(sandbox, *row)));
  }
  return {};
}

Result<NetworkRow> Networks::own_row(const std::string& owner, const std::string& id_or_name) {
  DRUPE_ASSIGN(auto rows, store_.list_networks(owner));
  for (NetworkRow& row : rows)
    if (row.id == id_or_name || row.name == id_or_name) return std::move(row);
  return not_found();
}

Result<std::vector<NetworkInfo>> Networks::engine_networks() {
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  return engine->private_networks();
}

Result<std::vector<NetworkView>> Networks::look(std::vector<NetworkRow> rows) {
  DRUPE_ASSIGN(const auto networks, engine_networks());
  std::vector<NetworkView> views;
  for (NetworkRow& row : rows) {
    NetworkView& view = views.emplace_back();
    view.row = std::move(row);
    const auto found = std::ranges::find(networks, view.row.id, &NetworkInfo::name);
    if (found == networks.end()) continue;
    for (const NetworkInfo::Member& member : found->members) {
      // In the engine a sandbox is named by its id here. One that was joined by other means is none of the
      // API's.
      const auto sandbox = sandboxes_.find(view.row.owner, member.name);
      if (!sandbox && sandbox.error().code == ErrorCode::kNotFound) continue;
      if (!sandbox) return std::unexpected(sandbox.error());
      view.members.push_back({sandbox->row.id, sandbox->row.name, sandbox->state, member.address});
    }
  }
  return views;
}

Result<NetworkView> Networks::create(const std::string& owner, const std::string& name) {
  DRUPE_TRY(check_name_word(name));
  NetworkView view;
  view.row = {make_id("net-"), owner, name, now_ns()};
  if (auto added = store_.add_network(view.row); !added) {
    if (added.error().code != ErrorCode::kAlreadyExists) return std::unexpected(std::move(added).error());
    return fail(ErrorCode::kAlreadyExists, "a network with the name \"" + name + "\" already exists");
  }
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  if (auto made = engine->create_private_network(view.row.id); !made) {
    static_cast<void>(store_.drop_network(view.row.id));
    return std::unexpected(std::move(made).error());
  }
  return view;
}

Result<std::vector<NetworkView>> Networks::list(const std::string& owner) {
  DRUPE_ASSIGN(auto rows, store_.list_networks(owner));
  return look(std::move(rows));
}

Result<NetworkView> Networks::find(const std::string& owner, const std::string& id_or_name) {
  DRUPE_ASSIGN(NetworkRow row, own_row(owner, id_or_name));
  DRUPE_ASSIGN(auto views, look({std::move(row)}));
  return std::move(views.front());
}

Status Networks::remove(const std::string& owner, const std::string& id_or_name) {
  DRUPE_ASSIGN(const NetworkRow row, own_row(owner, id_or_name));
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  if (auto removed = engine->remove_private_network(row.id, /*force=*/false); !removed) {
    if (removed.error().code == ErrorCode::kInvalidState)
      return fail(ErrorCode::kInvalidState,
                  "network \"" + row.name + "\" has members; detach them before deleting it");
    if (removed.error().code != ErrorCode::kNotFound) return removed;
  }
  return store_.drop_network(row.id);
}

Status Networks::attach(const std::string& owner, const std::string& sandbox, const std::string& network) {
  DRUPE_ASSIGN(const SandboxView view, sandboxes_.find(owner, sandbox));
  DRUPE_ASSIGN(const NetworkRow row, own_row(owner, network));
  if (view.state != State::kRunning && view.state != State::kPaused)
    return fail(ErrorCode::kInvalidState, "sandbox is " + std::string(to_string(view.state)));
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  return join_network(*engine, row, view.row);
}

Status Networks::detach(const std::string& owner, const std::string& sandbox, const std::string& network) {
  DRUPE_ASSIGN(const SandboxView view, sandboxes_.find(owner, sandbox));
  DRUPE_ASSIGN(const NetworkRow row, own_row(owner, network));
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  auto left = engine->disconnect_network(row.id, view.row.engine_id);
  if (!left && left.error().code == ErrorCode::kNotFound)
    return fail(ErrorCode::kNotFound, "sandbox is not in this network: not found");
  return left;
}

}  // namespace drupe::api
