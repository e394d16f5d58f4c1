// The record of a private network: a directory networks/<id>/ of the home with one JSON file, replaced
// atomically by whoever holds the lock over all networks (engine/private_networks.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/event_loop.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe {

inline constexpr const char* kNetworkRecordFile = "record.json";
/// In a sandbox's directory: members of its networks connect here (SOCK_SEQPACKET).
inline constexpr const char* kPeerSocketFile = "peer.sock";

struct PrivateNetwork {
  struct Member {
    std::string sandbox;     ///< Id. It counts only as long as that sandbox exists.
    std::uint32_t host = 0;  ///< Number of its address in the subnet; 2..254.
    /// Other names that its address has (protocol/net_peers.h).
    std::vector<std::string> aliases = {};
    bool operator==(const Member&) const = default;
  };
  std::string id;               ///< random_id()
  std::string name;             ///< Unique in the home.
  std::uint32_t subnet = 0;     ///< First address of 256, in host order.
  std::int64_t created_ns = 0;  ///< CLOCK_REALTIME
  std::vector<Member> members;
  /// Ids of sandboxes that a change concerns and that may not have heard of it: whoever made it was killed
  /// before they were all told, or could not tell them.
  std::vector<std::string> untold;
  bool operator==(const PrivateNetwork&) const = default;

  [[nodiscard]] bool has(std::string_view sandbox) const;
};

/// All subnets are of this range for measurements within a laboratory (RFC 2544), as are the addresses that
/// guests know themselves by: no network that a guest could want to reach uses it.
inline constexpr std::uint32_t kSubnetBase = 0xc6120000;  // 198.18.0.0
inline constexpr std::uint32_t kSubnets = 256;
/// The first address is the network's, the second is kept free, and the last is for broadcasts.
inline constexpr std::uint32_t kFirstHost = 2, kLastHost = 254;

[[nodiscard]] std::string encode_private_network(const PrivateNetwork& network);
/// Bounded and strict.
Result<PrivateNetwork> decode_private_network(std::string_view json);
inline constexpr std::size_t kMaxPrivateNetwork = std::size_t{256} << 10;

/// Of a sandbox or a network: twelve lower-case hexadecimal digits.
[[nodiscard]] bool is_short_id(std::string_view text);

/// A socket `name` in the working directory, on which nobody but its own user connects.
Result<UniqueFd> listen_for_peers(const std::string& name);

/// For a process in the directory of the sandbox `own`, below the home, that still may open files and
/// connect: `request` is an encoded net::PeerId. Only when both are members of that network, by its record,
/// is there a connected socket, and the first message on it says who `own` is. kPermission otherwise,
/// kUnavailable when the member does not run.
Result<UniqueFd> connect_to_peer(const std::string& own, std::string_view request);

}  // namespace drupe
