// What the packet plane is told at its start.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "net/stack/packet_address.h"

namespace drupe::net {

using TimePoint = std::chrono::steady_clock::time_point;

/// Where time comes from; tests inject their own.
class TimeSource {
 public:
  virtual ~TimeSource() = default;
  [[nodiscard]] virtual TimePoint now() = 0;
};
class SteadyTime final : public TimeSource {
 public:
  [[nodiscard]] TimePoint now() override { return std::chrono::steady_clock::now(); }
};

/// Largest MTU that a virtio NIC without offloads and one datagram per frame carry: an IP packet has at most
/// 65,535 bytes, and a multiple of 16 keeps payloads aligned. With it one system call moves 64 KiB.
inline constexpr std::size_t kMaxMtu = 65520;
/// RFC 8200 5: every IPv6 link carries packets of this size.
inline constexpr std::size_t kMinMtu = 1280;

inline constexpr std::size_t kKiB = 1024;
inline constexpr std::size_t kMiB = 1024 * kKiB;

struct TcpLimits {
  std::uint32_t max_connections = 2048;  ///< 1..65536, those in TIME-WAIT included.
  std::uint32_t max_half_open = 1024;    ///< Not yet established; a SYN beyond it is dropped.
  std::size_t buffer_size = 256 * kKiB;  ///< Most that is held for each direction; 16 KiB..512 KiB.
  /// What a new connection gets in any case for each direction; 16 KiB..buffer_size.
  std::size_t smallest_buffer = 16 * kKiB;
  /// Buffers of all connections together. As it is used up new connections get smaller buffers, never less
  /// than smallest_buffer, so the true bound is this plus twice that for each connection.
  std::size_t memory_budget = 64 * kMiB;
  std::chrono::milliseconds min_rto{200};
  std::chrono::milliseconds max_rto{30'000};
  std::chrono::milliseconds syn_rto{500};  ///< First retransmission of a SYN of ours, or of its answer.
  std::uint32_t syn_retries = 5;
  /// Shortest silence after which a guest's SYN without a decision counts as given up. A process that is gone
  /// sends nothing; one that waits repeats its SYN after about twice the time that has passed (RFC 6298 5.5).
  std::chrono::seconds syn_patience{5};
  std::uint32_t retries = 10;                            ///< Then the guest's end is taken for dead.
  std::chrono::seconds keepalive_idle{300};              ///< Silence before the guest is probed.
  std::chrono::seconds half_closed_idle{60};             ///< The same once one direction has ended.
  std::chrono::milliseconds keepalive_interval{10'000};  ///< Between probes.
  std::uint32_t keepalive_probes = 5;                    ///< Unanswered, then the connection is reset.
  /// The link holds no old duplicates for longer, so this replaces twice the maximum segment lifetime.
  std::chrono::milliseconds time_wait{2'000};
};

struct UdpLimits {
  std::uint32_t max_flows = 1024;  ///< 1..65536; the flow that was idle longest makes room.
  std::chrono::seconds idle_timeout{60};
};

struct StackConfig {
  MacAddress guest_mac, gateway_mac;
  PacketAddress guest_v4, gateway_v4;                 ///< Unspecified: no IPv4.
  std::optional<PacketAddress> guest_v6, gateway_v6;  ///< Global or unique local; absent: no IPv6.
  std::size_t mtu = kMaxMtu;                          ///< kMinMtu..kMaxMtu; what the guest is told as well.
  /// ARP and ND are answered for every address but the guest's, for networks whose members appear as
  /// neighbours. Otherwise only for the gateway.
  bool answer_for_neighbours = false;
  std::uint64_t secret = 0;              ///< Random: seeds hash tables and initial sequence numbers.
  std::size_t queue_bytes = 256 * kKiB;  ///< Small frames (ARP, ICMP, UDP, RST) that wait for the link.
  TcpLimits tcp;
  UdpLimits udp;
};

}  // namespace drupe::net
