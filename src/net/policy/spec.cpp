#include "net/policy/spec.h"

#include "base/bytes.h"

namespace drupe::net {
namespace {

constexpr std::uint8_t kVersion = 1;

void write_texts(ByteWriter& out, const std::vector<RuleText>& texts) {
  out.number(static_cast<std::uint32_t>(texts.size()));
  for (const RuleText& rule : texts) out.text(rule.text).text(rule.origin);
}

std::vector<RuleText> read_texts(ByteReader& in) {
  const auto count = in.number<std::uint32_t>();
  std::vector<RuleText> texts;
  // Each rule takes at least its length fields, which bounds this loop by the size of the input.
  for (std::uint32_t i = 0; in.ok() && i < count; ++i) {
    RuleText rule;
    rule.text = in.text();
    rule.origin = in.text();
    texts.push_back(std::move(rule));
  }
  return texts;
}

void write_rules(ByteWriter& out, const RuleTexts& rules) {
  out.number(static_cast<std::uint8_t>(rules.mode));
  write_texts(out, rules.allow);
  write_texts(out, rules.deny);
  out.texts(rules.allow_private);
}

std::optional<RuleTexts> read_rules(ByteReader& in) {
  RuleTexts rules;
  const auto mode = in.number<std::uint8_t>();
  if (mode > static_cast<std::uint8_t>(Mode::kPolicy)) return std::nullopt;
  rules.mode = static_cast<Mode>(mode);
  rules.allow = read_texts(in);
  rules.deny = read_texts(in);
  rules.allow_private = in.texts();
  return rules;
}

}  // namespace

std::string_view to_string(Mode mode) {
  switch (mode) {
    case Mode::kNone:
      return "none";
    case Mode::kOpen:
      return "open";
    case Mode::kPolicy:
      break;
  }
  return "policy";
}

std::optional<Mode> mode_from(std::string_view word) {
  for (const Mode mode : {Mode::kNone, Mode::kOpen, Mode::kPolicy})
    if (to_string(mode) == word) return mode;
  return std::nullopt;
}

RuleTexts rules_from_list(const std::vector<std::string>& egress) {
  RuleTexts rules;
  const bool everything = egress.empty() || (egress.size() == 1 && egress.front() == "*");
  rules.mode = everything ? Mode::kOpen : Mode::kPolicy;
  if (!everything)
    for (const std::string& text : egress) rules.allow.push_back({text, {}});
  return rules;
}

std::string encode_spec(const PolicySpec& spec) {
  ByteWriter out;
  out.number(kVersion);
  write_rules(out, spec.rules);
  out.flag(spec.ceiling.has_value());
  if (spec.ceiling) write_rules(out, *spec.ceiling);
  return out.take();
}

Result<PolicySpec> decode_spec(std::string_view bytes) {
  const auto bad = [] { return fail(ErrorCode::kIntegrity, "The encoded network policy is damaged"); };
  ByteReader in(bytes);
  if (in.number<std::uint8_t>() != kVersion) return bad();
  PolicySpec spec;
  auto rules = read_rules(in);
  if (!rules) return bad();
  spec.rules = *std::move(rules);
  if (in.flag()) {
    spec.ceiling = read_rules(in);
    if (!spec.ceiling) return bad();
  }
  if (!in.done()) return bad();
  return spec;
}

}  // namespace drupe::net
