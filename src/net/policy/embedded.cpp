#include "net/policy/embedded.h"

#include <array>
#include <cstring>

namespace drupe::net {
namespace {

std::uint32_t word_at(const IpAddress& address, std::size_t offset) {
  std::uint32_t value = 0;
  for (std::size_t i = offset; i < offset + 4; ++i) value = value << 8 | address.bytes()[i];
  return value;
}

bool starts_with(const IpAddress& address, std::span<const std::uint8_t> prefix) {
  return std::memcmp(address.bytes().data(), prefix.data(), prefix.size()) == 0;
}

/// RFC 6052, 2.2: the address follows the prefix and jumps over bits 64 to 71.
IpAddress behind_prefix(const IpAddress& address, unsigned bits) {
  std::size_t at = bits / 8;
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    if (at == 8) ++at;
    value = value << 8 | address.bytes()[at++];
  }
  return IpAddress::v4(value);
}

}  // namespace

bool is_nat64_prefix(const Cidr& prefix) {
  if (prefix.base.is_v4()) return false;
  for (const unsigned bits : {32U, 40U, 48U, 56U, 64U, 96U})
    if (prefix.bits == bits) return true;
  return false;
}

std::vector<IpAddress> embedded_v4(const IpAddress& address, std::span<const Cidr> nat64) {
  constexpr std::array<std::uint8_t, 12> kWellKnown{0x00, 0x64, 0xff, 0x9b};
  constexpr std::array<std::uint8_t, 12> kTranslated{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  constexpr std::array<std::uint8_t, 12> kCompatible{};
  constexpr std::array<std::uint8_t, 2> k6to4{0x20, 0x02};
  constexpr std::array<std::uint8_t, 4> kTeredo{0x20, 0x01, 0, 0};
  std::vector<IpAddress> found;
  if (address.is_v4()) return found;
  // "::" and "::1" are addresses of their own (RFC 4291, 2.5.2 and 2.5.3).
  const bool compatible = starts_with(address, kCompatible) && word_at(address, 12) > 1;
  if (starts_with(address, kWellKnown) || starts_with(address, kTranslated) || compatible)
    found.push_back(IpAddress::v4(word_at(address, 12)));
  if (starts_with(address, k6to4)) found.push_back(IpAddress::v4(word_at(address, 2)));
  if (starts_with(address, kTeredo)) {
    found.push_back(IpAddress::v4(word_at(address, 4)));
    found.push_back(IpAddress::v4(~word_at(address, 12)));
  }
  // The "u" bit of an ISATAP identifier is either value.
  if ((word_at(address, 8) & 0xfdffffffU) == 0x00005efeU)
    found.push_back(IpAddress::v4(word_at(address, 12)));
  for (const Cidr& prefix : nat64)
    if (is_nat64_prefix(prefix) && prefix.contains(address))
      found.push_back(behind_prefix(address, prefix.bits));
  return found;
}

}  // namespace drupe::net
