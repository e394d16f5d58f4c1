#include "net/policy/address.h"

#include <algorithm>
#include <cstring>

#include <arpa/inet.h>

#include "net/policy/text.h"

namespace drupe::net {
namespace {

constexpr std::size_t kMappedBits = 96;

std::optional<unsigned> parse_length(std::string_view text) {
  if (text.empty() || text.size() > 3 || !std::ranges::all_of(text, is_digit)) return std::nullopt;
  if (text.size() > 1 && text.front() == '0') return std::nullopt;
  unsigned value = 0;
  for (const char c : text) value = value * 10 + static_cast<unsigned>(c - '0');
  return value;
}

}  // namespace

IpAddress IpAddress::v4(std::uint32_t value) {
  IpAddress address;
  address.bytes_[10] = address.bytes_[11] = 0xff;
  for (std::size_t i = 0; i < 4; ++i)
    address.bytes_[12 + i] = static_cast<std::uint8_t>(value >> (24 - 8 * i));
  return address;
}

std::optional<IpAddress> IpAddress::from_bytes(ByteView bytes) {
  IpAddress address;
  if (bytes.size() == 4) {
    address.bytes_[10] = address.bytes_[11] = 0xff;
    std::ranges::copy(bytes, address.bytes_.begin() + 12);
    return address;
  }
  if (bytes.size() != 16) return std::nullopt;
  std::ranges::copy(bytes, address.bytes_.begin());
  return address;
}

std::optional<IpAddress> IpAddress::parse(std::string_view text) {
  if (text.size() >= INET6_ADDRSTRLEN || text.find('\0') != std::string_view::npos) return std::nullopt;
  const std::string terminated(text);
  std::array<std::uint8_t, 16> raw{};
  if (::inet_pton(AF_INET, terminated.c_str(), raw.data()) == 1) return from_bytes(ByteView(raw).first(4));
  if (::inet_pton(AF_INET6, terminated.c_str(), raw.data()) == 1) return from_bytes(raw);
  return std::nullopt;
}

bool IpAddress::is_v4() const {
  constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(bytes_.data(), kMapped.data(), kMapped.size()) == 0;
}

std::uint32_t IpAddress::v4_value() const {
  std::uint32_t value = 0;
  for (std::size_t i = 12; i < 16; ++i) value = value << 8 | bytes_[i];
  return value;
}

ByteView IpAddress::wire() const {
  return is_v4() ? ByteView(bytes_).subspan(12) : ByteView(bytes_);
}

std::string IpAddress::to_string() const {
  char text[INET6_ADDRSTRLEN];
  const bool four = is_v4();
  if (::inet_ntop(four ? AF_INET : AF_INET6, bytes_.data() + (four ? 12 : 0), text, sizeof(text)) == nullptr)
    return {};
  return text;
}

std::size_t IpAddressHash::operator()(const IpAddress& address) const noexcept {
  return std::hash<std::string_view>()(as_text(address.bytes()));
}

IpAddress masked(const IpAddress& address, unsigned bits) {
  std::array<std::uint8_t, 16> raw = address.bytes();
  const std::size_t keep = address.is_v4() ? kMappedBits + bits : bits;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const std::size_t first = i * 8;
    if (first >= keep)
      raw[i] = 0;
    else if (keep - first < 8)
      raw[i] = static_cast<std::uint8_t>(raw[i] & (0xff << (8 - (keep - first))));
  }
  return IpAddress::from_bytes(raw).value_or(IpAddress());
}

Cidr Cidr::only(const IpAddress& address) {
  return {address, static_cast<std::uint8_t>(address.is_v4() ? 32 : 128)};
}

std::optional<Cidr> Cidr::parse(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto base = IpAddress::parse(text.substr(0, slash));
  auto bits = parse_length(text.substr(slash + 1));
  if (!base || !bits) return std::nullopt;
  if (base->is_v4() && text.find(':') != std::string_view::npos) {
    // A range written in mapped form is a range of IPv4.
    if (*bits < kMappedBits) return std::nullopt;
    *bits -= static_cast<unsigned>(kMappedBits);
    if (*bits > 32) return std::nullopt;
  }
  if (*bits > (base->is_v4() ? 32U : 128U) || masked(*base, *bits) != *base) return std::nullopt;
  return Cidr{*base, static_cast<std::uint8_t>(*bits)};
}

bool Cidr::contains(const IpAddress& address) const {
  return address.is_v4() == base.is_v4() && masked(address, bits) == base;
}

bool Cidr::contains(const Cidr& other) const {
  return other.bits >= bits && contains(other.base);
}

std::string Cidr::to_string() const {
  return base.to_string() + "/" + std::to_string(bits);
}

}  // namespace drupe::net
