// MAC and IP addresses as they are on the wire, and the key of a flow.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "base/bytes.h"

namespace drupe::net {

struct MacAddress {
  std::array<std::uint8_t, 6> bytes{};
  friend bool operator==(const MacAddress&, const MacAddress&) = default;
  /// Broadcast or multicast (the lowest bit of the first byte, IEEE 802.3).
  [[nodiscard]] bool group() const { return (bytes[0] & 1) != 0; }
};

/// IPv4 or IPv6, as the packet spells it: an IPv4-mapped IPv6 address stays IPv6, so whoever judges addresses
/// must unwrap it.
struct PacketAddress {
  std::array<std::uint8_t, 16> bytes{};  ///< IPv4: the first four; the rest is zero.
  bool v6 = false;
  friend bool operator==(const PacketAddress&, const PacketAddress&) = default;

  [[nodiscard]] static PacketAddress v4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
    return PacketAddress{{a, b, c, d}, false};
  }
  /// Precondition: four bytes are readable.
  [[nodiscard]] static PacketAddress v4_at(const std::uint8_t* at) { return v4(at[0], at[1], at[2], at[3]); }
  /// Precondition: sixteen bytes are readable.
  [[nodiscard]] static PacketAddress v6_at(const std::uint8_t* at) {
    PacketAddress address;
    std::copy_n(at, 16, address.bytes.begin());
    address.v6 = true;
    return address;
  }
  [[nodiscard]] std::size_t size() const { return v6 ? 16 : 4; }
  [[nodiscard]] ByteView view() const { return {bytes.data(), size()}; }
  [[nodiscard]] bool unspecified() const { return bytes == std::array<std::uint8_t, 16>{}; }
  /// 224.0.0.0/4 or ff00::/8.
  [[nodiscard]] bool multicast() const { return v6 ? bytes[0] == 0xff : (bytes[0] & 0xf0) == 0xe0; }
  /// 255.255.255.255.
  [[nodiscard]] bool broadcast() const {
    return !v6 && bytes[0] == 255 && bytes[1] == 255 && bytes[2] == 255 && bytes[3] == 255;
  }
};

/// "192.0.2.1" or "2001:db8::1".
[[nodiscard]] std::string to_string(const PacketAddress& address);
/// fe80::/64 with the modified EUI-64 of `mac` (RFC 4291 appendix A), what Linux gives an interface.
[[nodiscard]] PacketAddress link_local_of(const MacAddress& mac);

/// One conversation, seen from the guest: the address and port there, and those of the other side.
struct FlowKey {
  PacketAddress guest, remote;
  std::uint16_t guest_port = 0, remote_port = 0;
  friend bool operator==(const FlowKey&, const FlowKey&) = default;
};

/// Hash with a secret: the guest chooses most of a key and must not choose its bucket.
struct FlowKeyHash {
  std::uint64_t secret = 0;
  [[nodiscard]] std::size_t operator()(const FlowKey& key) const;
};

/// Names a TCP or UDP flow. A number is used again, with another generation, after its flow is gone; calls
/// with an old FlowId do nothing.
struct FlowId {
  std::uint32_t index = 0;  ///< Small; callers may use it as an index of a table of their own.
  std::uint32_t generation = 0;
  friend bool operator==(const FlowId&, const FlowId&) = default;
};

}  // namespace drupe::net
