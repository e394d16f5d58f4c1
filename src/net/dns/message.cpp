#include "net/dns/message.h"

#include "net/policy/name.h"
#include "net/policy/text.h"

namespace drupe::net::dns {

std::string type_text(std::uint16_t type) {
  switch (type) {
    case kA:
      return "A";
    case kNs:
      return "NS";
    case kCname:
      return "CNAME";
    case kSoa:
      return "SOA";
    case kPtr:
      return "PTR";
    case kMx:
      return "MX";
    case kTxt:
      return "TXT";
    case kAaaa:
      return "AAAA";
    case kSrv:
      return "SRV";
    case kSvcb:
      return "SVCB";
    case kHttps:
      return "HTTPS";
    case kIxfr:
      return "IXFR";
    case kAxfr:
      return "AXFR";
    case kAny:
      return "ANY";
    default:
      return "TYPE" + std::to_string(type);
  }
}

std::optional<Name> Name::from_text(std::string_view text) {
  const auto normal = normal_name(text);
  if (!normal) return std::nullopt;
  if (text.ends_with('.')) text.remove_suffix(1);
  std::string wire;
  while (true) {
    const std::size_t dot = text.find('.');
    const std::string_view label = text.substr(0, dot);
    wire += static_cast<char>(label.size());
    wire += label;
    if (dot == std::string_view::npos) break;
    text.remove_prefix(dot + 1);
  }
  wire += '\0';
  return Name(std::move(wire));
}

std::string Name::text() const {
  std::string out;
  for (std::size_t at = 0; at < wire_.size() && wire_[at] != 0;) {
    const auto size = static_cast<std::size_t>(static_cast<unsigned char>(wire_[at]));
    if (!out.empty()) out += '.';
    for (const char c : std::string_view(wire_).substr(at + 1, size))
      out += is_alnum(c) || c == '-' || c == '_' ? c : '?';
    at += size + 1;
  }
  return out.empty() ? "." : out;
}

bool Name::same_as(const Name& other) const {
  // Length bytes are below 64 and so never letters.
  return equal_ignoring_case(wire_, other.wire_);
}

std::optional<Header> peek_header(ByteView bytes) {
  if (bytes.size() < 12) return std::nullopt;
  return Header{static_cast<std::uint16_t>(bytes[0] << 8 | bytes[1]), (bytes[2] & 0x80) != 0};
}

std::optional<Name> name_in_data(std::string_view data) {
  std::size_t at = 0;
  while (at < data.size()) {
    const auto size = static_cast<std::size_t>(static_cast<unsigned char>(data[at]));
    if (size == 0) return Name(std::string(data.substr(0, at + 1)));
    at += size + 1;
  }
  return std::nullopt;
}

}  // namespace drupe::net::dns
