#include "net/policy/rule_set.h"

#include <algorithm>

namespace drupe::net {
namespace {

thread_local RuleSet::StepCount* counting = nullptr;

}  // namespace

RuleSet::StepCount::StepCount() {
  counting = this;
}

RuleSet::StepCount::~StepCount() {
  counting = nullptr;
}

Result<RuleSet> RuleSet::compile(std::span<const RuleText> texts) {
  if (texts.size() > kMaxRules)
    return fail(ErrorCode::kLimit, "There are " + std::to_string(texts.size()) + " rules; at most " +
                                       std::to_string(kMaxRules) + " are possible");
  RuleSet set;
  set.rules_.reserve(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    auto rule = parse_rule(texts[i].text);
    if (!rule) return std::unexpected(std::move(rule).error().in("Rule " + std::to_string(i + 1)));
    if (!texts[i].origin.empty()) rule->text += " (" + texts[i].origin + ")";
    set.add(*std::move(rule));
  }
  set.sort_ports();
  return set;
}

void RuleSet::add(Rule rule) {
  const std::pair entry(rule.port, static_cast<std::uint32_t>(rules_.size()));
  switch (rule.kind) {
    case Rule::Kind::kAny:
      star_.push_back(entry);
      break;
    case Rule::Kind::kHost:
      hosts_[rule.host].push_back(entry);
      break;
    case Rule::Kind::kSubdomains:
      subdomains_[rule.host].push_back(entry);
      break;
    case Rule::Kind::kNetwork: {
      auto& family = rule.network.base.is_v4() ? v4_ : v6_;
      auto place =
          std::ranges::find_if(family, [&](const auto& one) { return one.bits <= rule.network.bits; });
      if (place == family.end() || place->bits != rule.network.bits)
        place = family.insert(place, Networks{rule.network.bits, {}});
      place->by_base[rule.network.base].push_back(entry);
      break;
    }
  }
  rules_.push_back(std::move(rule));
}

void RuleSet::sort_ports() {
  // Among equal rules the first written one is named.
  std::ranges::sort(star_);
  for (auto& [name, ports] : hosts_) std::ranges::sort(ports);
  for (auto& [name, ports] : subdomains_) std::ranges::sort(ports);
  for (auto* family : {&v4_, &v6_})
    for (auto& networks : *family)
      for (auto& [base, ports] : networks.by_base) std::ranges::sort(ports);
}

const Rule* RuleSet::exactly(const Ports& ports, std::uint16_t port) const {
  const auto found = std::ranges::lower_bound(
      ports, port,
      [](std::uint16_t a, std::uint16_t b) {
        if (counting != nullptr) ++counting->steps_;
        return a < b;
      },
      &Ports::value_type::first);
  return found != ports.end() && found->first == port ? rule_of(*found) : nullptr;
}

const Rule* RuleSet::covering(const Ports& ports, std::uint16_t port) const {
  if (const Rule* rule = exactly(ports, port)) return rule;
  return port == 0 ? nullptr : exactly(ports, 0);
}

template <class Visit>
void RuleSet::each_host_entry(std::string_view name, Visit visit) const {
  const auto look = [&](const Names& names, std::string_view key) {
    if (counting != nullptr) ++counting->steps_;
    const auto found = names.find(key);
    return found != names.end() && visit(found->second);
  };
  if (look(hosts_, name)) return;
  for (std::size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1))
    if (look(subdomains_, name.substr(dot + 1))) return;
}

const Rule* RuleSet::find_host(std::string_view name, std::uint16_t port) const {
  const Rule* named = nullptr;
  const Rule* every = nullptr;
  each_host_entry(name, [&](const Ports& ports) {
    if (port != 0) named = exactly(ports, port);
    if (every == nullptr) every = exactly(ports, 0);
    return named != nullptr;
  });
  return named != nullptr ? named : every;
}

const Rule* RuleSet::find_host(std::string_view name) const {
  const Rule* found = nullptr;
  each_host_entry(name, [&](const Ports& ports) {
    found = rule_of(ports.front());
    return true;
  });
  return found;
}

const Rule* RuleSet::find_address(const IpAddress& address, std::uint16_t port) const {
  for (const Networks& networks : address.is_v4() ? v4_ : v6_) {
    if (counting != nullptr) ++counting->steps_;
    const auto found = networks.by_base.find(masked(address, networks.bits));
    if (found == networks.by_base.end()) continue;
    if (const Rule* rule = covering(found->second, port)) return rule;
  }
  return covering(star_, port);
}

}  // namespace drupe::net
