// What is said to a sandbox's network process: its configuration, and requests while it runs.
//
// A stream socket carries records of u32 length, u32 id, payload; length counts id and payload, little
// endian. A request's payload is a u16 NetRequest and its body; an answer has the id of its request and the
// payload of encode_reply() or encode_error_reply() (protocol/messages.h). The first request is kConfigure.
// A request that says so comes with one descriptor (SCM_RIGHTS on its bytes). Records with the id kNetEventId
// are what the process says unasked: a u16 NetEvent and its body.
// The shim holds the other end; of policies, logs and counters it passes the bytes on.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/net_peers.h"

namespace drupe::net {

/// Longest record: a policy of 10,000 rules and a page of the log fit well.
inline constexpr std::size_t kMaxControlRecord = 8U << 20;

enum class NetRequest : std::uint16_t {
  kConfigure = 1,  ///< NetConfig -> NetReady, when the policy is in force; the guest's link may come up then.
  kSetPolicy = 2,  ///< SetPolicy. Answered when it is in force, for open connections too.
  kReadLog = 3,    ///< ReadLog -> LogPage.
  kCounters = 4,   ///< -> NetCounters.
  kFlows = 5,      ///< -> encode_saved_net(): connections and pins, for whoever goes on from a save.
  /// SetNetworks. Answered when it is in force: connections within networks that are no more have ended.
  kSetNetworks = 6,
  kPeerListener = 7,  ///< With a listening SOCK_SEQPACKET socket, to which members of its networks connect.
  kPeerChannel = 8,   ///< PeerChannelGrant, with the descriptor that it tells of.
  kSetResolvers = 9,  ///< SetResolvers. Questions under way go to the new ones when they are repeated.
};

/// Never a request's.
inline constexpr std::uint32_t kNetEventId = 0;
enum class NetEvent : std::uint16_t {
  kWantPeer = 1,  ///< PeerId: the guest wants to reach that member. kPeerChannel answers.
};

/// A port of the host that leads to one of the guest.
struct Publication {
  std::string address;  ///< Of the host; numeric.
  std::uint16_t host_port = 0, guest_port = 0;
  bool operator==(const Publication&) const = default;
};

struct NetConfig {
  std::array<std::uint8_t, 6> mac{};  ///< The guest's.
  std::uint32_t mtu = 0;
  std::string guest_v4, gateway_v4;    ///< Numeric; gateway answers DNS and echo.
  std::string guest_v6, gateway_v6;    ///< Empty: no IPv6.
  std::vector<std::string> resolvers;  ///< The host's own, numeric, optionally "address:port" or "[v6]:port".
  std::vector<std::string> search;     ///< Search domains of the host, which the guest is told as well.
  std::string policy;                  ///< encode_spec().
  std::vector<Publication> publications;
  std::uint64_t quota_bytes = 0;  ///< Payload both ways; then every connection is refused. 0: none.
  std::uint64_t used_bytes = 0;   ///< Of the quota, by an earlier process.
  std::string flows;              ///< What kFlows gave before a save; may be empty.
  bool ledger = false;            ///< A descriptor comes with it: protocol/net_ledger.h.
  std::vector<PeerNetwork> networks;
  [[nodiscard]] std::string encode() const;
  static Result<NetConfig> decode(ByteView bytes);
  bool operator==(const NetConfig&) const = default;
};

struct NetReady {
  std::vector<std::string> confinement_missing;  ///< What of the confinement this host did not allow.
  [[nodiscard]] std::string encode() const;
  static Result<NetReady> decode(ByteView bytes);
};

struct SetPolicy {
  std::string policy;  ///< encode_spec().
  std::uint64_t quota_bytes = 0;
  bool unpublish = false;  ///< Ports of the host are closed, and connections through them end.
  [[nodiscard]] std::string encode() const;
  static Result<SetPolicy> decode(ByteView bytes);
};

struct SetResolvers {
  std::vector<std::string> resolvers;  ///< As in NetConfig.
  [[nodiscard]] std::string encode() const;
  static Result<SetResolvers> decode(ByteView bytes);
};

struct ReadLog {
  std::uint64_t after = 0;     ///< Sequence number of the last entry that the caller has.
  std::uint32_t limit = 1000;  ///< Entries.
  [[nodiscard]] std::string encode() const;
  static Result<ReadLog> decode(ByteView bytes);
};

struct LogPage {
  std::vector<std::string> lines;  ///< JSON objects, oldest first.
  std::uint64_t last = 0;          ///< Sequence number to go on from.
  std::uint64_t lost = 0;          ///< Entries after `after` that the ring no longer has.
  [[nodiscard]] std::string encode() const;
  static Result<LogPage> decode(ByteView bytes);
};

struct NetCounters {
  std::uint64_t bytes_out = 0, bytes_in = 0;   ///< Payload from and to the guest.
  std::uint64_t connections = 0, refused = 0;  ///< TCP connections and UDP flows since the start.
  std::uint64_t open_connections = 0;
  std::uint64_t dropped_frames = 0;
  [[nodiscard]] std::string encode() const;
  static Result<NetCounters> decode(ByteView bytes);
};

}  // namespace drupe::net
