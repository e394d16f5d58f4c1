// Addresses that no rule reaches: the host itself, its neighbours, cloud metadata, and what is no unicast.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "net/policy/address.h"

namespace drupe::net {

/// What the machine that connections leave from says about its network.
struct HostFacts {
  std::vector<IpAddress> own_addresses;  ///< Of every interface; loopback addresses may be among them.
  std::vector<Cidr> nat64_prefixes;      ///< Beside 64:ff9b::/96; see embedded_v4().
  bool has_ipv6 = false;                 ///< A route to global IPv6 addresses.
};

/// How a closed range can be opened.
enum class Opening : std::uint8_t {
  kNever,   ///< Nothing there can be meant by a connection.
  kWithin,  ///< By a range that lies within it.
  kAlone,   ///< Only by a range of this one address: a wider one never means it.
};

struct ClosedRange {
  Cidr range;
  std::string_view name;
  Opening opening;
};

/// The fixed table, most specific ranges first: the first that contains an address decides. Documentation
/// ranges (RFC 5737, RFC 3849) are not closed: nothing public is there, and closed networks use them for
/// their mirrors.
[[nodiscard]] std::span<const ClosedRange> closed_ranges();

/// Immutable after create(); any thread.
class ClosedRanges {
 public:
  /// Closes everything of the table and the host's own addresses.
  ClosedRanges() = default;
  /// `openings` are ranges or single addresses ("10.1.0.0/16", "192.168.1.7", "fd00::/8"), at most
  /// kMaxOpenings. kInvalidArgument: one that is malformed, or that reaches beyond the closed range it
  /// begins in (0.0.0.0/0 opens nothing by accident).
  static Result<ClosedRanges> create(const HostFacts& host, std::span<const std::string> openings);

  /// Why `address` is closed ("closed: link-local 169.254.0.0/16"), in whatever spelling; nullopt when it is
  /// open.
  [[nodiscard]] std::optional<std::string> why_closed(const IpAddress& address) const;

  static constexpr std::size_t kMaxOpenings = 256;

 private:
  [[nodiscard]] std::optional<std::string> why_closed_itself(const IpAddress& address) const;
  [[nodiscard]] bool opened(const IpAddress& address, Opening opening) const;

  std::vector<Cidr> openings_;
  std::vector<Cidr> nat64_;
  std::unordered_set<IpAddress, IpAddressHash> own_;
};

}  // namespace drupe::net
