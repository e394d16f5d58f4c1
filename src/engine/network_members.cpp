// Private networks: who is in them, and telling the members that run.
#include <algorithm>
#include <thread>

#include <unistd.h>

#include "base/failpoint.h"
#include "base/ids.h"
#include "engine/engine_impl.h"
#include "engine/file_lock.h"
#include "engine/names.h"
#include "engine/private_networks.h"

namespace drupe {
namespace {

constexpr std::chrono::seconds kTellLimit{30};
constexpr std::chrono::milliseconds kTellPoll{3};

std::string called(const Home& home, const std::string& id) {
  const auto dir = home.open_sandbox(id);
  const auto record =
      dir ? read_own_record(dir->get(), id) : Result<SandboxRecord>(std::unexpected(dir.error()));
  return record && !record->name.empty() ? record->name : id;
}

}  // namespace

// One that does not run reads the records when it starts, and whoever starts it looks once more when it does.
Status EngineImpl::tell_networks(const std::string& id) {
  const auto dir = home_.open_sandbox(id);
  if (!dir) return {};
  const Deadline deadline = Clock::now() + kTellLimit;
  while (true) {
    if (owned_.contains(id)) return {};
    const auto alive = is_locked(dir->get(), kLockFile);
    const auto record = read_own_record(dir->get(), id);
    // Removed, or in a state that somebody else is to see.
    if (!alive || !record || !*alive || record->state != SandboxState::kRunning) return {};
    auto client = ShimClient::connect(*loop_, dir->get());
    if (!client && Clock::now() >= deadline) return std::unexpected(std::move(client).error());
    if (!client) {
      std::this_thread::sleep_for(kTellPoll);  // it starts or ends at this moment
      continue;
    }
    DRUPE_ASSIGN(auto networks, networks_of(home_, id));
    NetworksRequest request;
    request.spec = net_spec_for(record->network, std::move(networks));
    const std::string file = kNetSetFile + random_id();
    DRUPE_TRY(replace_file(dir->get(), file, request.encode(), Sync::kNo));
    const auto told = (*client)->call(static_cast<std::uint16_t>(ShimRequest::kNetworks),
                                      ByteWriter().text(file).bytes(), deadline);
    ::unlinkat(dir->get(), file.c_str(), 0);
    if (told) return {};
    const auto still = is_locked(dir->get(), kLockFile);
    const auto now = read_own_record(dir->get(), id);
    if (!still || !*still || !now || now->state != SandboxState::kRunning) return {};  // it has ended
    // A shim that is about to end says so, and is asked until it has.
    if (told.error().code != ErrorCode::kInvalidState || Clock::now() >= deadline)
      return std::unexpected(told.error());
    std::this_thread::sleep_for(kTellPoll);
  }
}

Status EngineImpl::tell_untold(PrivateNetwork& network, const std::string& last) {
  failpoint("engine.network.written");
  // Others first: whoever joins is known when it is told, and whoever leaves is refused already.
  if (std::erase(network.untold, last) != 0) network.untold.push_back(last);
  Status all;
  std::vector<std::string> left;
  for (const std::string& id : network.untold) {
    auto told = tell_networks(id);
    if (told) continue;
    left.push_back(id);
    if (all)
      all = std::unexpected(std::move(told).error().in("The sandbox " + called(home_, id) +
                                                       " was not told of the network's members"));
  }
  network.untold = std::move(left);
  DRUPE_TRY(write_private_network(home_, network));
  return all;
}

Result<UniqueFd> EngineImpl::take_networks() {
  DRUPE_ASSIGN(UniqueFd lock, lock_networks(home_));
  DRUPE_ASSIGN(auto networks, all_networks(home_));
  for (PrivateNetwork& network : networks) {
    if (network.untold.empty()) continue;
    if (const auto told = tell_untold(network, {}); !told) note(told.error().message);
  }
  return lock;
}

Result<std::vector<NetworkInfo>> EngineImpl::private_networks() {
  DRUPE_ASSIGN(const auto raw, all_networks(home_));
  if (std::ranges::any_of(raw, [](const auto& network) { return !network.untold.empty(); }))
    DRUPE_TRY(take_networks());
  DRUPE_ASSIGN(const auto networks, all_networks(home_));
  std::vector<NetworkInfo> out;
  for (const PrivateNetwork& network : networks) {
    NetworkInfo& info = out.emplace_back();
    info.id = network.id;
    info.name = network.name;
    info.subnet = address_of(network, {{}, 0}) + "/24";
    info.created_ns = network.created_ns;
    for (const auto& member : network.members) {
      // One that is damaged is a member all the same.
      NetworkInfo::Member& one = info.members.emplace_back();
      one.sandbox = member.sandbox;
      one.address = address_of(network, member);
      const auto found = look_at(member.sandbox);
      if (!found && found.error().code == ErrorCode::kNotFound) {
        info.members.pop_back();
        continue;
      }
      if (!found) continue;
      one.name = found->record.name;
      one.state = found->record.state;
    }
  }
  return out;
}

Result<NetworkInfo> EngineImpl::create_private_network(const std::string& name) {
  DRUPE_ASSIGN(const UniqueFd lock, take_networks());
  DRUPE_ASSIGN(const PrivateNetwork made, make_private_network(home_, name));
  return NetworkInfo{made.id, made.name, address_of(made, {{}, 0}) + "/24", made.created_ns, {}};
}

Status EngineImpl::remove_private_network(const std::string& id_or_name, bool force) {
  reap_children();
  DRUPE_ASSIGN(const UniqueFd lock, take_networks());
  DRUPE_ASSIGN(PrivateNetwork network, find_private_network(home_, id_or_name));
  if (!network.members.empty() && !force) {
    std::string names;
    for (const auto& member : network.members)
      names += (names.empty() ? "" : ", ") + called(home_, member.sandbox);
    return fail(ErrorCode::kInvalidState, "The network " + network.name + " has members: " + names,
                "Let them leave with drupe network disconnect, or take them all out of it with "
                "drupe network rm --force " +
                    network.name + ".");
  }
  DRUPE_TRY(drop_members(home_, network, {}));
  DRUPE_TRY(tell_untold(network, {}));
  return drupe::remove_private_network(home_, network);
}

Status EngineImpl::connect_network(const std::string& network_name, const std::string& id,
                                   const std::vector<std::string>& aliases) {
  reap_children();
  DRUPE_TRY(require_net_program());
  DRUPE_ASSIGN(const UniqueFd lock, take_networks());
  DRUPE_ASSIGN(PrivateNetwork network, find_private_network(home_, network_name));
  DRUPE_TRY(look_at(id));
  const bool joins = !network.has(id);
  DRUPE_TRY(add_member(home_, network, id, aliases));
  auto told = tell_untold(network, id);
  if (told || !joins) return told;
  if (drop_members(home_, network, id)) static_cast<void>(tell_untold(network, id));
  return told;
}

Status EngineImpl::disconnect_network(const std::string& network_name, const std::string& id) {
  reap_children();
  DRUPE_ASSIGN(const UniqueFd lock, take_networks());
  DRUPE_ASSIGN(PrivateNetwork network, find_private_network(home_, network_name));
  if (!network.has(id))
    return fail(ErrorCode::kNotFound,
                "The sandbox " + called(home_, id) + " is not in the network " + network.name);
  DRUPE_TRY(drop_members(home_, network, id));
  return tell_untold(network, id);
}

Result<std::vector<PrivateNetwork>> EngineImpl::wanted_networks(const std::vector<std::string>& names) {
  std::vector<PrivateNetwork> networks;
  for (const std::string& name : names) {
    DRUPE_ASSIGN(PrivateNetwork network, find_private_network(home_, name));
    if (std::ranges::find(networks, network.id, &PrivateNetwork::id) == networks.end())
      networks.push_back(std::move(network));
  }
  if (!networks.empty()) DRUPE_TRY(require_net_program());
  return networks;
}

Status EngineImpl::join_forked(const std::string& parent, const std::vector<std::string>& children) {
  DRUPE_ASSIGN(const auto all, all_networks(home_));
  if (std::ranges::none_of(all, [&](const auto& network) { return network.has(parent); })) return {};
  DRUPE_ASSIGN(const UniqueFd lock, take_networks());
  DRUPE_ASSIGN(auto networks, all_networks(home_));
  for (PrivateNetwork& network : networks) {
    if (!network.has(parent)) continue;
    for (const std::string& child : children) DRUPE_TRY(add_member(home_, network, child));
    DRUPE_TRY(tell_untold(network, {}));
  }
  return {};
}

void EngineImpl::tell_neighbours(const Result<std::vector<PrivateNetwork>>& concerned) {
  if (!concerned || concerned->empty()) return;
  const auto lock = take_networks();
  if (!lock) return note(lock.error().message);
  for (const PrivateNetwork& one : *concerned) {
    // As it is now; whoever is gone is left out.
    auto network = find_private_network(home_, one.id);
    if (!network) continue;
    auto told = note_change(home_, *network);
    if (told) told = tell_untold(*network, {});
    if (!told) note(told.error().message);
  }
}

Result<std::vector<PrivateNetwork>> EngineImpl::all_networks_with(const std::string& id) const {
  DRUPE_ASSIGN(auto networks, all_networks(home_));
  std::erase_if(networks, [&](const auto& network) { return !network.has(id); });
  return networks;
}

void EngineImpl::tell_after_start(const std::string& id, const std::vector<net::PeerNetwork>& known) {
  const auto now = networks_of(home_, id);
  if (!now || *now == known) return;
  const auto lock = take_networks();
  const auto told = lock ? tell_networks(id) : Status(std::unexpected(lock.error()));
  if (!told)
    note("The sandbox " + called(home_, id) + " was not told of its networks: " + told.error().message);
}

}  // namespace drupe
