// Private networks, as shims and network processes tell each other of them (protocol/net_control.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace drupe::net {

/// Of one sandbox.
inline constexpr std::size_t kMaxNetworks = 64;
/// Of one network: a range of 256 addresses without the first, the second and the last.
inline constexpr std::size_t kMaxMembers = 253;

/// Of one member.
inline constexpr std::size_t kMaxAliases = 2;
/// Bytes of one alias.
inline constexpr std::size_t kLongestAlias = 127;

struct PeerMember {
  std::string sandbox;  ///< Id.
  std::string name;     ///< May be empty, and need not be a host name.
  std::string address;  ///< Numeric, IPv4, unique among all networks of a home.
  /// Other names below the zones of private networks, which may have dots; at most kMaxAliases.
  std::vector<std::string> aliases = {};
  bool operator==(const PeerMember&) const = default;
};

/// A network that the sandbox is in.
struct PeerNetwork {
  std::string id, name;
  std::vector<PeerMember> members;  ///< The sandbox itself is one of them.
  bool operator==(const PeerNetwork&) const = default;
};

void append_networks(ByteWriter& writer, const std::vector<PeerNetwork>& networks);
/// Bounded; more than there may be makes the reader fail.
[[nodiscard]] std::vector<PeerNetwork> read_networks(ByteReader& reader);

/// All networks of the sandbox from now on.
struct SetNetworks {
  std::vector<PeerNetwork> networks;
  [[nodiscard]] std::string encode() const;
  static Result<SetNetworks> decode(ByteView bytes);
};

/// One member of one network: what a network process asks its shim for, and what is said first on a new
/// channel, by the process that made it, of the sandbox that it is for.
struct PeerId {
  std::string network;  ///< Id.
  std::string sandbox;  ///< Id.
  [[nodiscard]] std::string encode() const;
  static Result<PeerId> decode(ByteView bytes);
  bool operator==(const PeerId&) const = default;
};
/// An encoded PeerId is not longer.
inline constexpr std::size_t kMaxPeerId = 256;

/// The answer to a PeerId that was asked for.
struct PeerChannelGrant {
  PeerId peer;
  bool connected = false;  ///< A SOCK_SEQPACKET socket comes with it; false: the member does not run.
  [[nodiscard]] std::string encode() const;
  static Result<PeerChannelGrant> decode(ByteView bytes);
};

}  // namespace drupe::net
