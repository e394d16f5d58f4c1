#include "image/address.h"

#include <array>
#include <cstdint>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace drupe {
namespace {

struct Range {
  std::uint32_t network;
  int bits;
};

constexpr std::array kClosed{
    Range{0x00000000, 8},   // this network
    Range{0x0a000000, 8},   // private
    Range{0x64400000, 10},  // shared by carriers
    Range{0x7f000000, 8},   // loopback
    Range{0xa9fe0000, 16},  // link-local: cloud metadata
    Range{0xac100000, 12},  // private
    Range{0xc0000000, 24},  // protocol assignments
    Range{0xc0a80000, 16},  // private
    Range{0xc6120000, 15},  // benchmarks
    Range{0xe0000000, 4},   // multicast
    Range{0xf0000000, 4},   // reserved, broadcast
};

bool is_public_v4(std::uint32_t address) {
  for (const Range& range : kClosed)
    if (((address ^ range.network) >> (32 - range.bits)) == 0) return false;
  return true;
}

std::uint32_t v4_at(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 |
         bytes[3];
}

bool is_public_v6(const std::uint8_t* bytes) {
  constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  constexpr std::array<std::uint8_t, 12> kNat64{0x00, 0x64, 0xff, 0x9b};
  constexpr std::array<std::uint8_t, 12> kCompatible{};  // also :: and ::1
  if (std::memcmp(bytes, kMapped.data(), kMapped.size()) == 0 ||
      std::memcmp(bytes, kNat64.data(), kNat64.size()) == 0)
    return is_public_v4(v4_at(bytes + 12));
  if (std::memcmp(bytes, kCompatible.data(), kCompatible.size()) == 0) return false;
  if (bytes[0] == 0x20 && bytes[1] == 0x02) return is_public_v4(v4_at(bytes + 2));  // 6to4
  if ((bytes[0] & 0xfe) == 0xfc) return false;                                      // unique local
  if (bytes[0] == 0xfe && (bytes[1] & 0x80) == 0x80) return false;                  // link-local, site-local
  return bytes[0] != 0xff;                                                          // multicast
}

}  // namespace

bool is_public_address(const sockaddr* address, std::size_t size) {
  if (address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof(v4));
    return is_public_v4(ntohl(v4.sin_addr.s_addr));
  }
  if (address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof(v6));
    return is_public_v6(v6.sin6_addr.s6_addr);
  }
  return false;
}

bool is_private_literal(const std::string& host) {
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return !is_public_v4(ntohl(v4.s_addr));
  if (!host.starts_with('[') || !host.ends_with(']')) return false;
  in6_addr v6{};
  const std::string inner = host.substr(1, host.size() - 2);
  return ::inet_pton(AF_INET6, inner.c_str(), &v6) != 1 || !is_public_v6(v6.s6_addr);
}

}  // namespace drupe
