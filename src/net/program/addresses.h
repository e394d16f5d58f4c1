// Between the forms of addresses: as text, as a packet has them, as a policy judges them.
#pragma once

#include <optional>
#include <string_view>

#include "net/policy/address.h"
#include "net/stack/packet_address.h"

namespace drupe::net {

[[nodiscard]] IpAddress ip_address(const PacketAddress& address);
/// An IPv4-mapped IPv6 address becomes IPv4.
[[nodiscard]] PacketAddress packet_address(const IpAddress& address);
[[nodiscard]] std::optional<PacketAddress> packet_address(std::string_view text);

/// Address and port of a server.
struct Endpoint {
  PacketAddress address;
  std::uint16_t port = 0;
  bool operator==(const Endpoint&) const = default;
};
/// "192.0.2.1", "192.0.2.1:5353", "2001:db8::1", "[2001:db8::1]:53"; numeric only.
[[nodiscard]] std::optional<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port);

}  // namespace drupe::net
