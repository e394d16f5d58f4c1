#include "engine/private_networks.h"

#include <algorithm>
#include <cerrno>
#include <ranges>
#include <set>

#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/files.h"
#include "base/ids.h"
#include "engine/file_lock.h"
#include "engine/sandbox_files.h"
#include "net/policy/name.h"

namespace drupe {
namespace {

constexpr const char* kLock = "locks/networks";
constexpr std::chrono::seconds kLockWait{60};

std::string directory_of(const std::string& id) {
  return "networks/" + id;
}

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool exists(const Home& home, const std::string& sandbox) {
  const std::string path = Home::sandbox(sandbox);
  return ::faccessat(home.dir(), path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool same_name(const std::string& one, std::string_view other) {
  return one.size() == other.size() && ::strncasecmp(one.data(), other.data(), one.size()) == 0;
}

/// Nothing: it is being made or removed, or is a leftover of that.
Result<std::optional<PrivateNetwork>> read_network(const Home& home, const std::string& id) {
  const auto text = read_file(home.dir(), directory_of(id) + "/" + kNetworkRecordFile, kMaxPrivateNetwork);
  if (!text && text.error().code == ErrorCode::kNotFound) return std::nullopt;
  if (!text) return std::unexpected(text.error());
  DRUPE_ASSIGN(PrivateNetwork network, decode_private_network(*text));
  if (network.id != id)
    return fail(ErrorCode::kIntegrity, "The record of the private network " + id + " names another one",
                "Remove its directory below networks/ in the home.");
  return network;
}

Result<std::vector<PrivateNetwork>> read_all_networks(const Home& home) {
  DRUPE_ASSIGN(auto ids, home.names_in("networks"));
  std::erase_if(ids, [](const std::string& id) { return !is_short_id(id); });
  std::vector<PrivateNetwork> networks;
  for (const std::string& id : ids) {
    DRUPE_ASSIGN(auto network, read_network(home, id));
    if (network) networks.push_back(*std::move(network));
  }
  std::ranges::sort(networks, {}, &PrivateNetwork::name);
  return networks;
}

void forget_gone(const Home& home, PrivateNetwork& network) {
  std::erase_if(network.members, [&](const auto& member) { return !exists(home, member.sandbox); });
}

std::string name_of(const Home& home, const std::string& sandbox) {
  const auto dir = home.open_sandbox(sandbox);
  if (!dir) return {};
  const auto record = read_own_record(dir->get(), sandbox);
  return record ? record->name : std::string();
}

Status check_aliases(const std::vector<std::string>& aliases) {
  if (aliases.size() > net::kMaxAliases)
    return fail(ErrorCode::kLimit, "A member of a network can have " + std::to_string(net::kMaxAliases) +
                                       " other names, not more");
  for (const std::string& alias : aliases)
    if (alias.size() > net::kLongestAlias || !net::normal_name(alias))
      return fail(ErrorCode::kInvalidArgument,
                  "The name \"" + alias.substr(0, 80) + "\" is no host name of at most 127 bytes");
  return {};
}

}  // namespace

Status check_network_name(std::string_view name) {
  constexpr std::size_t kLongest = 63;  // RFC 1035, 2.3.4
  const bool good =
      !name.empty() && name.size() <= kLongest && is_alphanumeric(name.front()) &&
      std::ranges::all_of(name, [](char c) { return is_alphanumeric(c) || c == '_' || c == '-'; });
  if (good && name != "none" && name != "host") return {};
  return fail(
      ErrorCode::kInvalidArgument,
      "The network name \"" + std::string(name.substr(0, 80)) + "\" cannot be used",
      "Names have up to 63 letters, digits, '_' and '-' and begin with a letter or digit; not none or host.");
}

Result<UniqueFd> lock_networks(const Home& home) {
  return lock_file(home.dir(), kLock, Clock::now() + kLockWait, "the lock over private networks");
}

Result<std::vector<PrivateNetwork>> all_networks(const Home& home) {
  DRUPE_ASSIGN(auto networks, read_all_networks(home));
  for (PrivateNetwork& network : networks) forget_gone(home, network);
  return networks;
}

Result<PrivateNetwork> find_private_network(const Home& home, std::string_view id_or_name) {
  DRUPE_ASSIGN(auto networks, all_networks(home));
  for (PrivateNetwork& network : networks)
    if (same_name(network.name, id_or_name) || network.id == id_or_name) return std::move(network);
  return fail(ErrorCode::kNotFound, "There is no network " + std::string(id_or_name.substr(0, 80)),
              "drupe network ls lists all networks, drupe network create makes one.");
}

std::string address_of(const PrivateNetwork& network, const PrivateNetwork::Member& member) {
  const std::uint32_t value = network.subnet + member.host;
  return std::to_string(value >> 24) + "." + std::to_string(value >> 16 & 255) + "." +
         std::to_string(value >> 8 & 255) + "." + std::to_string(value & 255);
}

Result<std::vector<net::PeerNetwork>> networks_of(const Home& home, const std::string& sandbox) {
  DRUPE_ASSIGN(const auto networks, all_networks(home));
  std::vector<net::PeerNetwork> out;
  for (const PrivateNetwork& network : networks) {
    if (!network.has(sandbox)) continue;
    net::PeerNetwork& peers = out.emplace_back();
    peers.id = network.id;
    peers.name = network.name;
    for (const auto& member : network.members)
      peers.members.push_back(
          {member.sandbox, name_of(home, member.sandbox), address_of(network, member), member.aliases});
  }
  return out;
}

Status write_private_network(const Home& home, const PrivateNetwork& network) {
  return replace_file(home.dir(), directory_of(network.id) + "/" + kNetworkRecordFile,
                      encode_private_network(network), Sync::kNo);
}

Result<PrivateNetwork> make_private_network(const Home& home, const std::string& name) {
  DRUPE_TRY(check_network_name(name));
  DRUPE_ASSIGN(const auto others, read_all_networks(home));
  std::set<std::uint32_t> taken;
  for (const PrivateNetwork& other : others) {
    if (same_name(other.name, name))
      return fail(ErrorCode::kAlreadyExists, "There is a network " + other.name + " already",
                  "Choose another name, or remove it with drupe network rm " + other.name + ".");
    taken.insert(other.subnet);
  }
  PrivateNetwork network;
  network.id = random_id();
  network.name = name;
  network.created_ns = realtime_ns();
  network.subnet = kSubnetBase;
  while (taken.contains(network.subnet)) network.subnet += 256;
  if (network.subnet >= kSubnetBase + 256 * kSubnets)
    return fail(ErrorCode::kLimit, "There are " + std::to_string(kSubnets) + " networks already",
                "Remove one with drupe network rm.");
  DRUPE_TRY(make_dir_at(home.dir(), directory_of(network.id)));
  failpoint("engine.network.directory");
  DRUPE_TRY(write_private_network(home, network));
  return network;
}

Status note_change(const Home& home, PrivateNetwork& network) {
  for (const auto& member : network.members)
    if (std::ranges::find(network.untold, member.sandbox) == network.untold.end())
      network.untold.push_back(member.sandbox);
  std::erase_if(network.untold, [&](const std::string& id) { return !exists(home, id); });
  return write_private_network(home, network);
}

Status add_member(const Home& home, PrivateNetwork& network, const std::string& sandbox,
                  const std::vector<std::string>& aliases) {
  DRUPE_TRY(check_aliases(aliases));
  forget_gone(home, network);
  if (const auto member = std::ranges::find(network.members, sandbox, &PrivateNetwork::Member::sandbox);
      member != network.members.end()) {
    if (member->aliases == aliases) return {};
    member->aliases = aliases;
    return note_change(home, network);
  }
  DRUPE_ASSIGN(const auto others, read_all_networks(home));
  const auto joined = std::ranges::count_if(others, [&](const auto& other) { return other.has(sandbox); });
  if (static_cast<std::size_t>(joined) >= net::kMaxNetworks)
    return fail(ErrorCode::kLimit,
                "A sandbox can be in " + std::to_string(net::kMaxNetworks) + " networks, not more");
  std::set<std::uint32_t> taken;
  for (const auto& member : network.members) taken.insert(member.host);
  // Behind the last one first: an address that was somebody's is not at once another's.
  const std::uint32_t after = taken.empty() ? kFirstHost - 1 : *taken.rbegin();
  constexpr std::uint32_t kHosts = kLastHost - kFirstHost + 1;
  for (std::uint32_t i = 0; i < kHosts; ++i) {
    const std::uint32_t host = kFirstHost + (after + 1 - kFirstHost + i) % kHosts;
    if (taken.contains(host)) continue;
    network.members.push_back({sandbox, host, aliases});
    return note_change(home, network);
  }
  return fail(ErrorCode::kLimit, "The network " + network.name + " has " + std::to_string(kHosts) +
                                     " members, and no address for another one");
}

Status drop_members(const Home& home, PrivateNetwork& network, const std::string& sandbox) {
  for (const auto& member : network.members)
    if (std::ranges::find(network.untold, member.sandbox) == network.untold.end())
      network.untold.push_back(member.sandbox);
  std::erase_if(network.members,
                [&](const auto& member) { return sandbox.empty() || member.sandbox == sandbox; });
  forget_gone(home, network);
  return note_change(home, network);
}

Status remove_private_network(const Home& home, const PrivateNetwork& network) {
  return home.discard(directory_of(network.id));
}

std::uint32_t sweep_networks(const Home& home) {
  const auto lock = try_lock(home.dir(), kLock);
  const auto ids = home.names_in("networks");
  if (!lock || !lock->valid() || !ids) return 0;
  std::uint32_t swept = 0;
  for (const std::string& id : *ids) {
    const auto read = read_network(home, id);
    if (!read) continue;  // damaged: somebody is to see it
    if (!*read) {
      if (home.discard(directory_of(id))) ++swept;
      continue;
    }
    PrivateNetwork network = **read;
    const std::size_t before = network.members.size();
    forget_gone(home, network);
    if (network.members.size() != before && write_private_network(home, network)) ++swept;
  }
  return swept;
}

}  // namespace drupe
