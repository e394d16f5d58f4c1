// IP addresses and ranges, in one form whatever their spelling.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace drupe::net {

/// An IPv4 or IPv6 address, a plain value. IPv4 is kept in its IPv4-mapped form ::ffff:a.b.c.d (RFC 4291,
/// 2.5.5.2), so that the two spellings are one value and every rule means both.
class IpAddress {
 public:
  constexpr IpAddress() = default;  ///< "::"
  /// `value` in host order: 0x7f000001 is 127.0.0.1.
  [[nodiscard]] static IpAddress v4(std::uint32_t value);
  /// 4 or 16 bytes in network order; every other size is nullopt.
  [[nodiscard]] static std::optional<IpAddress> from_bytes(ByteView bytes);
  /// Strict: dotted decimal without leading zeros, or RFC 4291 text without a zone and without brackets.
  [[nodiscard]] static std::optional<IpAddress> parse(std::string_view text);

  [[nodiscard]] bool is_v4() const;
  /// Host order; only for is_v4().
  [[nodiscard]] std::uint32_t v4_value() const;
  /// 16 bytes in network order.
  [[nodiscard]] const std::array<std::uint8_t, 16>& bytes() const { return bytes_; }
  /// The 4 or 16 bytes that stand in a packet or a DNS record.
  [[nodiscard]] ByteView wire() const;
  /// "192.0.2.1", "2001:db8::1" (RFC 5952).
  [[nodiscard]] std::string to_string() const;

  auto operator<=>(const IpAddress&) const = default;

 private:
  std::array<std::uint8_t, 16> bytes_{};
};

struct IpAddressHash {
  [[nodiscard]] std::size_t operator()(const IpAddress& address) const noexcept;
};

/// A range of addresses of one family: IPv6 ranges never contain IPv4 addresses, so "::/0" is not
/// "0.0.0.0/0".
struct Cidr {
  IpAddress base;         ///< All bits behind the prefix are zero.
  std::uint8_t bits = 0;  ///< 0..32 for IPv4, 0..128 for IPv6.

  /// The range with this one address.
  [[nodiscard]] static Cidr only(const IpAddress& address);
  /// "10.0.0.0/8", "2001:db8::/32"; the length is mandatory. Bits set behind the prefix are a mistake.
  [[nodiscard]] static std::optional<Cidr> parse(std::string_view text);
  [[nodiscard]] bool contains(const IpAddress& address) const;
  [[nodiscard]] bool contains(const Cidr& other) const;
  [[nodiscard]] bool overlaps(const Cidr& other) const { return contains(other) || other.contains(*this); }
  [[nodiscard]] bool single() const { return bits == (base.is_v4() ? 32 : 128); }
  [[nodiscard]] std::string to_string() const;

  bool operator==(const Cidr&) const = default;
};

/// `address` with all bits behind the first `bits` (of its family) cleared.
[[nodiscard]] IpAddress masked(const IpAddress& address, unsigned bits);

}  // namespace drupe::net
