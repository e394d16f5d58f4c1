// One rule of an egress policy, as people write it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/policy/address.h"

namespace drupe::net {

/// A checked rule, a plain value.
struct Rule {
  enum class Kind : std::uint8_t {
    kAny,         ///< "*"
    kHost,        ///< "host": this name only
    kSubdomains,  ///< "*.host": every name below it, not the name itself
    kNetwork,     ///< an address or a range
  };
  Kind kind = Kind::kAny;
  std::string host;        ///< Normalised; for kHost and kSubdomains.
  Cidr network;            ///< For kNetwork.
  std::uint16_t port = 0;  ///< 0: every port.
  std::string text;        ///< What a decision calls it: the rule as written, and where it came from.

  [[nodiscard]] bool by_name() const { return kind == Kind::kHost || kind == Kind::kSubdomains; }
};

/// host, *.host, ip, cidr, [v6], [v6/length], v6/length and *, each with an optional ":port"; an IPv6 address
/// without brackets stands without a port. No URL, protocol or range of ports. kInvalidArgument names the
/// column (from 1) of the mistake.
Result<Rule> parse_rule(std::string_view text);

/// Longest rule in bytes: a host name, its port and some room.
inline constexpr std::size_t kLongestRule = 300;

}  // namespace drupe::net
