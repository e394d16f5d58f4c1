// What the packet plane counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace drupe::net {

/// Why a frame of the guest is thrown away.
enum class DropReason : std::uint8_t {
  kRunt,            ///< Ends before its headers do.
  kGiant,           ///< Longer than the link's MTU.
  kNotForUs,        ///< Ethernet destination is neither the gateway nor a group.
  kForgedMac,       ///< Source MAC, or the MAC inside ARP or ND, is not the guest's.
  kForgedAddress,   ///< Source IP, or the IP inside ARP or ND, is not the guest's.
  kUnknownType,     ///< Ethernet type or IP protocol that nothing here speaks.
  kBadHeader,       ///< A length or a field that contradicts itself.
  kBadChecksum,     ///< IPv4, ICMP, UDP or TCP checksum.
  kFragment,        ///< IPv4 or IPv6 fragments are never reassembled.
  kBadDestination,  ///< Multicast, broadcast, unspecified, or the guest itself.
  kIgnored,         ///< Well-formed and not served: DHCP, RARP, MLD, router solicitations.
  kTableFull,       ///< A bound on connections or flows is reached.
  kQueueFull,       ///< Towards the guest: the queue of small frames is full.
  kBadSequence,     ///< TCP segment outside the window, or with an impossible acknowledgement.
};
inline constexpr std::size_t kDropReasons = 14;

/// Stable lower-case word ("bad_checksum") for logs and JSON.
[[nodiscard]] const char* to_string(DropReason reason);

struct Counters {
  std::uint64_t frames_in = 0, bytes_in = 0;    ///< From the guest, dropped ones included.
  std::uint64_t frames_out = 0, bytes_out = 0;  ///< Taken by the link.
  std::array<std::uint64_t, kDropReasons> dropped{};
  std::uint64_t tcp_opened = 0, tcp_retransmits = 0, tcp_challenges = 0;
  std::uint64_t udp_flows = 0;

  void drop(DropReason reason) { ++dropped[static_cast<std::size_t>(reason)]; }
  [[nodiscard]] std::uint64_t count(DropReason reason) const {
    return dropped[static_cast<std::size_t>(reason)];
  }
};

}  // namespace drupe::net
