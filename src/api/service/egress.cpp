#include "api/service/egress.h"

#include <algorithm>

#include "net/policy/closed.h"
#include "net/policy/rule.h"

namespace drupe::api {
namespace {

constexpr std::size_t kMostRules = 1000;

/// A rule for a closed range would never let anything through, and whoever writes one wants to know. Ranges
/// that nothing can be reached in are good: 240.0.0.0/4 is how clients say "no network". A wider range is
/// good too: what is closed within it stays closed.
Status check_open(const std::string& text, const net::Cidr& range, const net::ClosedRanges& closed) {
  for (const net::ClosedRange& one : net::closed_ranges()) {
    if (one.opening == net::Opening::kNever || !one.range.contains(range)) continue;
    if (const auto why = closed.why_closed(range.base))
      return fail(ErrorCode::kPermission, "egress rule \"" + text + "\" is not allowed here (" + *why + ")");
    return {};
  }
  return {};
}

}  // namespace

Result<NetworkOptions> network_for(const std::optional<std::vector<std::string>>& egress,
                                   const std::vector<std::string>& open_ranges) {
  NetworkOptions options;
  options.mode = NetworkMode::kOpen;
  if (!egress) return options;
  if (egress->size() > kMostRules)
    return fail(ErrorCode::kInvalidArgument, "egress has more than " + std::to_string(kMostRules) + " rules");
  DRUPE_ASSIGN(const auto closed, net::ClosedRanges::create(net::HostFacts{}, open_ranges));
  for (const std::string& text : *egress) {
    auto rule = net::parse_rule(text);
    if (!rule) return std::unexpected(std::move(rule).error().in("egress"));
    if (rule->kind == net::Rule::Kind::kNetwork) DRUPE_TRY(check_open(text, rule->network, closed));
  }
  if (egress->empty() || std::ranges::find(*egress, "*") != egress->end()) return options;
  options.mode = NetworkMode::kPolicy;
  options.allow = *egress;
  options.allow_private = open_ranges;
  return options;
}

}  // namespace drupe::api
