// IPv4 addresses inside IPv6 addresses: spellings by which a translator or a tunnel reaches an IPv4 host.
#pragma once

#include <span>
#include <vector>

#include "net/policy/address.h"

namespace drupe::net {

/// The IPv4 addresses that a packet to `address` may end up at, none for IPv4 itself. Known forms:
/// NAT64 64:ff9b::/96 and the given prefixes (RFC 6052, 2.2), 6to4 2002::/16 (RFC 3056), Teredo 2001::/32
/// (RFC 4380, 4: server and client), IPv4-translated ::ffff:0:0:0/96 (RFC 2765), IPv4-compatible ::/96
/// (RFC 4291, 2.5.5.1), ISATAP interface identifiers (RFC 5214, 6.1).
/// `nat64` holds the prefixes of the host's own network, of length 32, 40, 48, 56, 64 or 96.
[[nodiscard]] std::vector<IpAddress> embedded_v4(const IpAddress& address, std::span<const Cidr> nat64);

/// True when `prefix` may stand in the `nat64` list above.
[[nodiscard]] bool is_nat64_prefix(const Cidr& prefix);

}  // namespace drupe::net
