// Private networks of a home: networks/<id>/record.json each (shim/private_network.h).
//
// A member counts only as long as its sandbox exists, so a sandbox that goes leaves every network, whoever
// removed it and however it ended; the next change takes it out of the record. A directory without a record
// is one that a killed process was making or removing. All changes, and telling them to the members that run,
// happen under one lock, so that they arrive in the order in which they were made; it is taken before the
// home's, never under it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/home.h"
#include "protocol/net_peers.h"
#include "shim/private_network.h"

namespace drupe {

/// [A-Za-z0-9][A-Za-z0-9_-]{0,62}, which is a label of a host name; "none" and "host" are other tools' words.
Status check_network_name(std::string_view name);
/// The lock over changes.
Result<UniqueFd> lock_networks(const Home& home);
/// By name. Members whose sandboxes are gone are left out.
Result<std::vector<PrivateNetwork>> all_networks(const Home& home);
/// By name, without regard to case, or id.
Result<PrivateNetwork> find_private_network(const Home& home, std::string_view id_or_name);
/// Networks that `sandbox` is in, with the names that their members have now.
Result<std::vector<net::PeerNetwork>> networks_of(const Home& home, const std::string& sandbox);
/// "198.18.0.2"
[[nodiscard]] std::string address_of(const PrivateNetwork& network, const PrivateNetwork::Member& member);

// With the lock. A change notes in the record whom it concerns (PrivateNetwork::untold), so that it is told
// by whoever takes the lock next when its maker is killed.

/// kAlreadyExists for a name that is taken, kLimit when all subnets are.
Result<PrivateNetwork> make_private_network(const Home& home, const std::string& name);
/// Gives a sandbox, which need not exist yet, an address, and other names that it has. A member keeps its
/// address and gets these names instead of those that it had. kLimit at a bound, kInvalidArgument for what is
/// no host name.
Status add_member(const Home& home, PrivateNetwork& network, const std::string& sandbox,
                  const std::vector<std::string>& aliases = {});
/// One, or all where `sandbox` is empty.
Status drop_members(const Home& home, PrivateNetwork& network, const std::string& sandbox);
/// All members are to hear of it again: one has another name, or is gone.
Status note_change(const Home& home, PrivateNetwork& network);
Status write_private_network(const Home& home, const PrivateNetwork& network);
Status remove_private_network(const Home& home, const PrivateNetwork& network);
/// Takes out what killed processes and sandboxes that are gone have left, unless somebody holds the lock,
/// which it takes itself; how many there were.
std::uint32_t sweep_networks(const Home& home);

}  // namespace drupe
