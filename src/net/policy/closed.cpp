#include "net/policy/closed.h"

#include <algorithm>
#include <cstdlib>

#include "net/policy/embedded.h"
#include "net/policy/text.h"

namespace drupe::net {
namespace {

struct Line {
  std::string_view range;
  std::string_view name;
  Opening opening;
};

// Special-purpose registries of IANA (RFC 6890), and where the large clouds answer requests for a machine's
// credentials. Most specific first.
constexpr Line kTable[] = {
    {"255.255.255.255/32", "broadcast", Opening::kNever},
    {"169.254.169.254/32", "metadata", Opening::kAlone},         // nearly every cloud
    {"169.254.169.253/32", "metadata", Opening::kAlone},         // AWS: resolver
    {"169.254.169.123/32", "metadata", Opening::kAlone},         // AWS: clock
    {"169.254.170.2/32", "metadata", Opening::kAlone},           // AWS: credentials of tasks
    {"169.254.170.23/32", "metadata", Opening::kAlone},          // AWS: credentials of pods
    {"169.254.42.42/32", "metadata", Opening::kAlone},           // Scaleway
    {"168.63.129.16/32", "metadata", Opening::kAlone},           // Azure: agent and resolver
    {"100.100.100.200/32", "metadata", Opening::kAlone},         // Alibaba
    {"192.0.0.192/32", "metadata", Opening::kAlone},             // Oracle
    {"fd00:ec2::254/128", "metadata", Opening::kAlone},          // AWS
    {"fd00:ec2::253/128", "metadata", Opening::kAlone},          // AWS: resolver
    {"fd00:ec2::23/128", "metadata", Opening::kAlone},           // AWS: credentials of pods
    {"fd20:ce::254/128", "metadata", Opening::kAlone},           // Google
    {"fd00:42::42/128", "metadata", Opening::kAlone},            // Scaleway
    {"::1/128", "loopback", Opening::kWithin},                   // RFC 4291, 2.5.3
    {"::/128", "unspecified", Opening::kNever},                  // RFC 4291, 2.5.2
    {"::/96", "IPv4-compatible", Opening::kNever},               // RFC 4291, 2.5.5.1
    {"100::/64", "discard", Opening::kNever},                    // RFC 6666
    {"64:ff9b:1::/48", "local NAT64", Opening::kWithin},         // RFC 8215
    {"192.0.0.0/24", "protocol assignments", Opening::kWithin},  // RFC 6890
    {"192.168.0.0/16", "private", Opening::kWithin},             // RFC 1918
    {"169.254.0.0/16", "link-local", Opening::kWithin},          // RFC 3927
    {"5f00::/16", "segment routing", Opening::kNever},           // RFC 9602
    {"198.18.0.0/15", "benchmarks", Opening::kWithin},           // RFC 2544
    {"172.16.0.0/12", "private", Opening::kWithin},              // RFC 1918
    {"100.64.0.0/10", "carrier", Opening::kWithin},              // RFC 6598
    {"fe80::/10", "link-local", Opening::kWithin},               // RFC 4291, 2.5.6
    {"fec0::/10", "site-local", Opening::kWithin},               // RFC 3879
    {"0.0.0.0/8", "this network", Opening::kNever},  // RFC 1122, 3.2.1.3; Linux takes 0.0.0.0 for itself
    {"10.0.0.0/8", "private", Opening::kWithin},     // RFC 1918
    {"127.0.0.0/8", "loopback", Opening::kWithin},   // RFC 1122, 3.2.1.3
    {"ff00::/8", "multicast", Opening::kNever},      // RFC 4291, 2.7
    {"fc00::/7", "private", Opening::kWithin},       // RFC 4193
    {"224.0.0.0/4", "multicast", Opening::kNever},   // RFC 5771
    {"240.0.0.0/4", "reserved", Opening::kNever},    // RFC 1112, 4
};

std::vector<ClosedRange> read_table() {
  std::vector<ClosedRange> ranges;
  for (const Line& line : kTable) {
    const auto range = Cidr::parse(line.range);
    if (!range) std::abort();  // a slip of the pen in the table
    ranges.push_back({*range, line.name, line.opening});
  }
  return ranges;
}

const ClosedRange* find_closed(const IpAddress& address) {
  for (const ClosedRange& closed : closed_ranges())
    if (closed.range.contains(address)) return &closed;
  return nullptr;
}

bool is_loopback(const IpAddress& address) {
  const ClosedRange* closed = find_closed(address);
  return closed != nullptr && closed->name == "loopback";
}

std::string text_of(const ClosedRange& closed) {
  return "closed: " + std::string(closed.name) + " " +
         (closed.range.single() ? closed.range.base.to_string() : closed.range.to_string());
}

Result<Cidr> parse_opening(std::string_view text) {
  std::optional<Cidr> range = Cidr::parse(text);
  if (!range)
    if (const auto address = IpAddress::parse(text)) range = Cidr::only(*address);
  if (!range)
    return fail(ErrorCode::kInvalidArgument, shown(text) + " is not a range of addresses",
                "Write a range like 10.1.0.0/16 or fd12::/32 (no bits behind the prefix), or one address.");
  for (const ClosedRange& closed : closed_ranges()) {
    if (!closed.range.overlaps(*range)) continue;
    if (closed.opening == Opening::kNever)
      return fail(ErrorCode::kInvalidArgument, shown(text) + " cannot be opened: it reaches the " +
                                                   std::string(closed.name) + " addresses " +
                                                   closed.range.to_string());
    // As for addresses, the most specific range that contains it decides.
    if (closed.range.contains(*range)) break;
    if (closed.opening == Opening::kWithin)
      return fail(ErrorCode::kInvalidArgument,
                  shown(text) + " is wider than the " + std::string(closed.name) + " range " +
                      closed.range.to_string() + " within it",
                  "Open the ranges that are meant one by one.");
  }
  return *range;
}

}  // namespace

std::span<const ClosedRange> closed_ranges() {
  static const std::vector<ClosedRange> ranges = read_table();
  return ranges;
}

Result<ClosedRanges> ClosedRanges::create(const HostFacts& host, std::span<const std::string> openings) {
  if (openings.size() > kMaxOpenings)
    return fail(ErrorCode::kLimit, "More than " + std::to_string(kMaxOpenings) + " ranges are opened");
  ClosedRanges ranges;
  for (const std::string& text : openings) {
    DRUPE_ASSIGN(const Cidr range, parse_opening(text));
    ranges.openings_.push_back(range);
  }
  for (const IpAddress& address : host.own_addresses)
    if (!is_loopback(address)) ranges.own_.insert(address);
  ranges.nat64_ = host.nat64_prefixes;
  return ranges;
}

std::optional<std::string> ClosedRanges::why_closed(const IpAddress& address) const {
  if (auto why = why_closed_itself(address)) return why;
  for (const IpAddress& inner : embedded_v4(address, nat64_))
    if (auto why = why_closed_itself(inner)) return *why + " as " + inner.to_string() + " inside IPv6";
  return std::nullopt;
}

std::optional<std::string> ClosedRanges::why_closed_itself(const IpAddress& address) const {
  if (own_.contains(address) && !opened(address, Opening::kAlone)) return "closed: the host's own address";
  const ClosedRange* closed = find_closed(address);
  if (closed == nullptr || opened(address, closed->opening)) return std::nullopt;
  return text_of(*closed);
}

bool ClosedRanges::opened(const IpAddress& address, Opening opening) const {
  if (opening == Opening::kNever) return false;
  return std::ranges::any_of(openings_, [&](const Cidr& range) {
    return range.contains(address) && (opening == Opening::kWithin || range.single());
  });
}

}  // namespace drupe::net
