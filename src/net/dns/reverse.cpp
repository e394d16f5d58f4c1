// Names of the reverse zones.
#include <array>

#include "net/dns/proxy.h"
#include "net/policy/name.h"
#include "net/policy/text.h"

namespace drupe::net::dns {
namespace {

/// Labels of `text`, last one first.
std::vector<std::string_view> labels_backwards(std::string_view text) {
  std::vector<std::string_view> labels;
  while (!text.empty()) {
    const std::size_t dot = text.rfind('.');
    labels.push_back(dot == std::string_view::npos ? text : text.substr(dot + 1));
    text = dot == std::string_view::npos ? std::string_view() : text.substr(0, dot);
  }
  return labels;
}

std::optional<IpAddress> from_nibbles(const std::vector<std::string_view>& labels) {
  std::array<std::uint8_t, 16> raw{};
  if (labels.size() != 32) return std::nullopt;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const char c = labels[i].size() == 1 ? to_lower(labels[i][0]) : 'x';
    if (!is_digit(c) && (c < 'a' || c > 'f')) return std::nullopt;
    const int value = is_digit(c) ? c - '0' : c - 'a' + 10;
    raw[i / 2] = static_cast<std::uint8_t>(raw[i / 2] << 4 | value);
  }
  return IpAddress::from_bytes(raw);
}

}  // namespace

std::optional<IpAddress> reverse_address(std::string_view name) {
  constexpr std::string_view kV4 = ".in-addr.arpa";
  constexpr std::string_view kV6 = ".ip6.arpa";
  const auto normal = normal_name(name);
  if (!normal) return std::nullopt;
  std::string_view rest = *normal;
  if (rest.ends_with(kV6)) {
    rest.remove_suffix(kV6.size());
    return from_nibbles(labels_backwards(rest));
  }
  if (!rest.ends_with(kV4)) return std::nullopt;
  rest.remove_suffix(kV4.size());
  std::string dotted;
  for (const std::string_view label : labels_backwards(rest)) {
    if (!dotted.empty()) dotted += '.';
    dotted += label;
  }
  return IpAddress::parse(dotted);
}

}  // namespace drupe::net::dns
