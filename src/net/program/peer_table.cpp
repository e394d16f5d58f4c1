#include "net/program/peer_table.h"

#include <algorithm>
#include <set>

#include "net/policy/name.h"

namespace drupe::net {

Result<std::vector<PeerEntry>> peer_entries(const std::vector<PeerNetwork>& networks) {
  std::vector<PeerEntry> entries;
  std::set<IpAddress> addresses;
  std::set<std::pair<std::string, std::string>> ids;
  for (const PeerNetwork& network : networks)
    for (const PeerMember& member : network.members) {
      const auto address = IpAddress::parse(member.address);
      if (!address || !address->is_v4())
        return fail(ErrorCode::kInvalidArgument, "A member of a private network has no IPv4 address");
      if (!addresses.insert(*address).second || !ids.insert({network.id, member.sandbox}).second)
        return fail(ErrorCode::kInvalidArgument, "Two members of private networks are the same");
      entries.push_back({{network.id, member.sandbox}, network.name, member.name, *address, member.aliases});
    }
  return entries;
}

dns::LocalNames peer_names(const std::vector<PeerEntry>& entries) {
  dns::LocalNames names;
  const auto add = [&names](const std::string& own, const IpAddress& address) {
    for (const char* zone : {".drupe.internal", ".fc.local"}) {
      const auto name = own.empty() ? std::nullopt : normal_name(own + zone);
      if (!name) continue;
      auto& addresses = names[*name];
      if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
    }
  };
  for (const PeerEntry& entry : entries) {
    for (const std::string& own : {entry.name, entry.id.sandbox}) {
      add(own, entry.address);
      if (!own.empty()) add(own + "." + entry.network_name, entry.address);
    }
    for (const std::string& alias : entry.aliases) add(alias, entry.address);
  }
  return names;
}

}  // namespace drupe::net
