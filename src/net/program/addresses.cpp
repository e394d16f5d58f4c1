#include "net/program/addresses.h"

#include <charconv>

namespace drupe::net {
namespace {

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

std::optional<Endpoint> make(std::string_view address, std::optional<std::uint16_t> port) {
  const auto parsed = packet_address(address);
  if (!parsed || !port) return std::nullopt;
  return Endpoint{*parsed, *port};
}

}  // namespace

IpAddress ip_address(const PacketAddress& address) {
  return IpAddress::from_bytes(address.view()).value_or(IpAddress());
}

PacketAddress packet_address(const IpAddress& address) {
  const ByteView bytes = address.wire();
  return address.is_v4() ? PacketAddress::v4_at(bytes.data()) : PacketAddress::v6_at(bytes.data());
}

std::optional<PacketAddress> packet_address(std::string_view text) {
  const auto parsed = IpAddress::parse(text);
  if (!parsed) return std::nullopt;
  return packet_address(*parsed);
}

std::optional<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port) {
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    const std::string_view rest = text.substr(close + 1);
    if (rest.empty()) return make(text.substr(1, close - 1), default_port);
    if (!rest.starts_with(':')) return std::nullopt;
    return make(text.substr(1, close - 1), parse_port(rest.substr(1)));
  }
  const auto colon = text.find(':');
  if (colon == std::string_view::npos || text.find(':', colon + 1) != std::string_view::npos)
    return make(text, default_port);
  return make(text.substr(0, colon), parse_port(text.substr(colon + 1)));
}

}  // namespace drupe::net
