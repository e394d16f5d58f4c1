// Which network addresses belong to the public internet.
#pragma once

#include <string>

#include <sys/socket.h>

namespace drupe {

/// False for loopback, private, shared, link-local, multicast and unspecified addresses (RFC 6890), also
/// inside IPv6 forms that carry an IPv4 address, and for every family that is not IP. Documentation ranges
/// count as public: they are never routed there, and closed networks use them for mirrors.
[[nodiscard]] bool is_public_address(const sockaddr* address, std::size_t size);
/// True when `host` ("10.0.0.1", "[::1]") is a literal address that is not public.
[[nodiscard]] bool is_private_literal(const std::string& host);

}  // namespace drupe
