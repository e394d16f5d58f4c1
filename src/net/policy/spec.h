// An egress policy as configured: plain values that travel from whoever sets it to the process that keeps it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/policy/rule_set.h"

namespace drupe::net {

enum class Mode : std::uint8_t {
  kNone,    ///< No network: the link is down.
  kOpen,    ///< Everything but closed ranges and what a deny rule names.
  kPolicy,  ///< Only what an allow rule names.
};
[[nodiscard]] std::string_view to_string(Mode mode);
/// "none", "open", "policy".
[[nodiscard]] std::optional<Mode> mode_from(std::string_view word);

struct RuleTexts {
  Mode mode = Mode::kNone;
  std::vector<RuleText> allow;             ///< For kPolicy; presets are already expanded (presets.h).
  std::vector<RuleText> deny;              ///< Wins over every allow rule, also under kOpen.
  std::vector<std::string> allow_private;  ///< Closed ranges that are opened; a rule is needed all the same.

  bool operator==(const RuleTexts&) const = default;
};

struct PolicySpec {
  RuleTexts rules;
  /// An upper bound set by the program that embeds the engine: what it does not allow, no rule allows.
  std::optional<RuleTexts> ceiling;

  bool operator==(const PolicySpec&) const = default;
};

/// The control plane's list form: an empty list and the list of only "*" mean kOpen, any other kPolicy.
[[nodiscard]] RuleTexts rules_from_list(const std::vector<std::string>& egress);

/// Bytes for a pipe or a file; decode_spec() takes hostile bytes and gives kIntegrity for what
/// encode_spec() cannot have written. Rules themselves are checked by Policy::compile().
[[nodiscard]] std::string encode_spec(const PolicySpec& spec);
Result<PolicySpec> decode_spec(std::string_view bytes);

}  // namespace drupe::net
