#include "shim/private_network.h"

#include <algorithm>
#include <cerrno>
#include <set>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/files.h"
#include "base/pass_fds.h"
#include "protocol/net_peers.h"
#include "shim/record_json.h"

namespace drupe {
namespace {

using record_json::Fields;
using record_json::Json;

constexpr int kBacklog = 64;
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kLongestName = 63;
// Members before a change, and after it.
constexpr std::size_t kMostUntold = 2 * net::kMaxMembers;

std::unexpected<Error> damaged(const std::string& why) {
  return fail(ErrorCode::kIntegrity, "The record of a private network is damaged: " + why,
              "Remove its directory below networks/ in the home.");
}

Result<UniqueFd> packet_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fail_sys("Creating a socket failed", errno);
  return fd;
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

}  // namespace

bool PrivateNetwork::has(std::string_view sandbox) const {
  return std::ranges::any_of(members, [&](const Member& member) { return member.sandbox == sandbox; });
}

bool is_short_id(std::string_view text) {
  return text.size() == 12 &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string encode_private_network(const PrivateNetwork& network) {
  Json json{{"version", kVersion},
            {"id", network.id},
            {"name", network.name},
            {"subnet", network.subnet},
            {"created_ns", network.created_ns}};
  Json members = Json::array();
  for (const auto& member : network.members)
    members.push_back(Json{{"sandbox", member.sandbox},
                           {"host", member.host},
                           {"aliases", record_json::from_list(member.aliases)}});
  json["members"] = std::move(members);
  json["untold"] = record_json::from_list(network.untold);
  return json.dump(1) + "\n";
}

Result<PrivateNetwork> decode_private_network(std::string_view text) {
  if (text.size() > kMaxPrivateNetwork) return damaged("it is too long");
  // Five levels of nesting at most, in a text that is short.
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return damaged("it is not JSON");
  Fields fields(json, "the record");
  PrivateNetwork network;
  if (fields.unsigned_number("version", kVersion) != kVersion) fields.mistake("version", "is unknown");
  network.id = fields.bytes("id");
  network.name = fields.bytes("name");
  network.subnet = static_cast<std::uint32_t>(fields.unsigned_number("subnet", 0xffffffff));
  network.created_ns = fields.signed_number("created_ns", 0, INT64_MAX);
  std::set<std::string> sandboxes;
  std::set<std::uint32_t> hosts;
  if (const Json* members = fields.array("members"))
    for (const Json& item : *members) {
      Fields one(item, "a member");
      PrivateNetwork::Member member;
      member.sandbox = one.bytes("sandbox");
      member.host = static_cast<std::uint32_t>(one.unsigned_number("host", kLastHost));
      member.aliases = one.list("aliases");
      const auto is_alias = [](const std::string& alias) {
        return !alias.empty() && alias.size() <= net::kLongestAlias;
      };
      if (member.aliases.size() > net::kMaxAliases || !std::ranges::all_of(member.aliases, is_alias))
        one.mistake("aliases", "is no list of names");
      if (!one.error().empty() || !is_short_id(member.sandbox) || member.host < kFirstHost ||
          !sandboxes.insert(member.sandbox).second || !hosts.insert(member.host).second)
        return damaged("a member is none");
      network.members.push_back(std::move(member));
    }
  network.untold = fields.list("untold");
  if (network.untold.size() > kMostUntold || !std::ranges::all_of(network.untold, is_short_id))
    fields.mistake("untold", "is no list of sandboxes");
  const bool in_range = network.subnet >= kSubnetBase && network.subnet % 256 == 0 &&
                        (network.subnet - kSubnetBase) / 256 < kSubnets;
  if (!fields.error().empty()) return damaged(fields.error());
  if (!is_short_id(network.id) || network.name.empty() || network.name.size() > kLongestName || !in_range)
    return damaged("its name or its addresses are none");
  return network;
}

Result<UniqueFd> listen_for_peers(const std::string& name) {
  DRUPE_ASSIGN(UniqueFd fd, packet_socket());
  const sockaddr_un address = address_of(name);
  if (::unlink(name.c_str()) != 0 && errno != ENOENT)
    return fail_sys("Removing an old socket for private networks failed", errno);
  const mode_t before = ::umask(0177);
  const int rc = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int err = errno;
  ::umask(before);
  if (rc != 0) return fail_sys("Binding the socket for private networks failed", err);
  if (::listen(fd.get(), kBacklog) != 0)
    return fail_sys("Listening for members of private networks failed", errno);
  return fd;
}

Result<UniqueFd> connect_to_peer(const std::string& own, std::string_view request) {
  DRUPE_ASSIGN(const net::PeerId peer, net::PeerId::decode(as_bytes(request)));
  // They become paths.
  if (!is_short_id(peer.network) || !is_short_id(peer.sandbox))
    return fail(ErrorCode::kInvalidArgument, "A member of a private network is named wrongly");
  const std::string path = "../../networks/" + peer.network + "/" + kNetworkRecordFile;
  DRUPE_ASSIGN(const std::string text, read_file(AT_FDCWD, path, kMaxPrivateNetwork));
  DRUPE_ASSIGN(const PrivateNetwork network, decode_private_network(text));
  if (network.id != peer.network || !network.has(own) || !network.has(peer.sandbox))
    return fail(ErrorCode::kPermission, "The two sandboxes are not in this network");
  DRUPE_ASSIGN(UniqueFd fd, packet_socket());
  const sockaddr_un address = address_of("../../sandboxes/" + peer.sandbox + "/" + kPeerSocketFile);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_errno(ErrorCode::kUnavailable, "The member of the private network does not run", errno);
  DRUPE_TRY(send_with_fds(fd.get(), net::PeerId{peer.network, own}.encode(), {}));
  return fd;
}

}  // namespace drupe
