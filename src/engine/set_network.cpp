// Changing what a sandbox may reach.
#include <unistd.h>

#include "base/ids.h"
#include "engine/engine_impl.h"
#include "engine/network.h"

namespace drupe {
namespace {

constexpr std::chrono::seconds kSetLimit{30};

}  // namespace

Result<NetworkRecord> EngineImpl::checked_network(const NetworkOptions& options) const {
  DRUPE_ASSIGN(NetworkRecord network,
               make_network(options, options_.network_ceiling, net::host_preset_source()));
  if (network.mode != NetworkMode::kNone) DRUPE_TRY(require_net_program());
  return network;
}

Status EngineImpl::require_net_program() const {
  if (::access(installation_.net_path.c_str(), X_OK) == 0) return {};
  return fail(ErrorCode::kNotFound, "The network's program is missing: " + installation_.net_path,
              "It belongs beside drupe-shim; build or install Drupe again. Without it sandboxes have no "
              "network (--net none).");
}

NetSpec EngineImpl::net_spec_for(const NetworkRecord& network, std::vector<net::PeerNetwork> networks) const {
  NetSpec spec;
  // Most sandboxes have none, and would read files for nothing.
  if (network.mode != NetworkMode::kNone || !networks.empty()) spec = host_net_spec();
  spec.policy = encode_policy(network, options_.network_ceiling);
  spec.networks = std::move(networks);
  return spec;
}

Status EngineImpl::set_network(const std::string& id, const NetworkOptions& options) {
  reap_children();
  if (!options.publish.empty())
    return fail(ErrorCode::kUnsupported, "Ports are published when a sandbox is made");
  DRUPE_ASSIGN(NetworkRecord network, checked_network(options));
  DRUPE_ASSIGN(const SandboxInfo info, look_at(id));
  network.publications = info.record.network.publications;
  if (network.mode == NetworkMode::kNone) network.publications.clear();
  if (!info.alive || info.record.state != SandboxState::kRunning) {
    const bool owned = owned_.contains(id);
    DRUPE_ASSIGN(Held held, hold(id));
    network.used_bytes = held.record.network.used_bytes;
    held.record.network = std::move(network);
    auto written = write_record(held.dir.get(), held.record);
    // One that ends with this process unless it is started stays so.
    if (owned) owned_[id] = std::move(held.lock);
    return written;
  }
  NetSetRequest request;
  request.network = network;
  DRUPE_ASSIGN(auto networks, networks_of(home_, id));
  request.spec = net_spec_for(network, std::move(networks));
  DRUPE_ASSIGN(const UniqueFd dir, home_.open_sandbox(id));
  const std::string file = kNetSetFile + random_id();
  DRUPE_TRY(replace_file(dir.get(), file, request.encode(), Sync::kNo));
  auto set = call(id, ShimRequest::kNetSet, ByteWriter().text(file).bytes(), kSetLimit);
  ::unlinkat(dir.get(), file.c_str(), 0);
  return set;
}

}  // namespace drupe
