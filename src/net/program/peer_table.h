// Who is in a sandbox's private networks, and what the names in them mean.
#pragma once

#include <string>
#include <vector>

#include "net/dns/proxy.h"
#include "protocol/net_peers.h"

namespace drupe::net {

/// One member of one network.
struct PeerEntry {
  PeerId id;
  std::string network_name, name;
  IpAddress address;  ///< IPv4.
  std::vector<std::string> aliases = {};
  bool operator==(const PeerEntry&) const = default;
};

/// All members of all networks. kInvalidArgument for what is no IPv4 address, and for an address, or a member
/// of a network, that is there twice.
Result<std::vector<PeerEntry>> peer_entries(const std::vector<PeerNetwork>& networks);

/// NAME, ID, NAME.NETWORK and ID.NETWORK, and aliases, below drupe.internal and fc.local. Several members
/// that have one name there are all answered; what is no host name is left out.
[[nodiscard]] dns::LocalNames peer_names(const std::vector<PeerEntry>& entries);

}  // namespace drupe::net
