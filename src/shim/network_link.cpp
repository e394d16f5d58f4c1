#include "shim/network_link.h"

#include <algorithm>
#include <cstdlib>

namespace drupe {
namespace {

std::string resolv_conf(const net::NetConfig& config) {
  std::string text;
  if (!config.search.empty()) {
    text += "search";
    for (const auto& domain : config.search) text += " " + domain;
    text += "\n";
  }
  return text + "nameserver " + config.gateway_v4 + "\n";
}

}  // namespace

std::string mac_of(const std::string& machine_id) {
  std::string mac(1, '\x02');
  for (std::size_t i = 0; i < 5; ++i)
    mac.push_back(static_cast<char>(std::strtoul(machine_id.substr(i * 2, 2).c_str(), nullptr, 16)));
  return mac;
}

net::NetConfig net_config(const SandboxRecord& record, const NetSpec& spec, std::string flows) {
  net::NetConfig config;
  std::ranges::copy(mac_of(record.machine_id), config.mac.begin());
  config.mtu = inner::kMtu;
  config.guest_v4 = inner::kGuestV4;
  config.gateway_v4 = inner::kGatewayV4;
  if (spec.ipv6) {
    config.guest_v6 = inner::kGuestV6;
    config.gateway_v6 = inner::kGatewayV6;
  }
  config.resolvers = spec.resolvers;
  config.search = spec.search;
  config.policy = spec.policy;
  config.publications = record.network.publications;
  config.quota_bytes = record.network.quota_bytes;
  config.used_bytes = record.network.used_bytes;
  config.flows = std::move(flows);
  config.networks = spec.networks;
  return config;
}

Status raise_link(Machine& machine, GuestLink& link, Network& network, const SandboxRecord& record,
                  bool names, Deadline deadline) {
  DRUPE_TRY(network.await_ready(deadline));
  DRUPE_TRY(machine.set_link(true, deadline));
  const net::NetConfig& config = network.config();
  SetNetworkRequest request;
  request.up = true;
  request.mac = mac_of(record.machine_id);
  request.mtu = config.mtu;
  request.v4 = config.guest_v4;
  request.gateway_v4 = config.gateway_v4;
  request.v4_prefix = inner::kPrefixV4;
  request.v6 = config.guest_v6;
  request.gateway_v6 = config.gateway_v6;
  request.v6_prefix = config.guest_v6.empty() ? std::uint8_t{0} : inner::kPrefixV6;
  if (names) request.resolv_conf = resolv_conf(config);
  DRUPE_TRY(link.call(RequestKind::kSetNetwork, request.encode(), deadline));
  return {};
}

Status lower_link(Machine& machine, GuestLink& link, Deadline deadline) {
  DRUPE_TRY(machine.set_link(false, deadline));
  DRUPE_TRY(link.call(RequestKind::kSetNetwork, SetNetworkRequest{}.encode(), deadline));
  return {};
}

}  // namespace drupe
