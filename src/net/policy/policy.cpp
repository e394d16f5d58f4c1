#include "net/policy/policy.h"

#include <algorithm>

#include "net/policy/embedded.h"
#include "net/policy/name.h"

namespace drupe::net {
namespace {

Decision refused(std::string rule) {
  return {false, std::move(rule), NameCheck::kNone, {}};
}

/// Ports on which a name rule means TLS or HTTP and nothing else.
bool is_web_port(std::uint16_t port) {
  return port == 80 || port == 443;
}

}  // namespace

std::string_view to_string(Protocol protocol) {
  return protocol == Protocol::kTcp ? "tcp" : "udp";
}

Result<std::shared_ptr<const Policy>> Policy::compile(const PolicySpec& spec, const HostFacts& host,
                                                      std::uint64_t generation) {
  auto policy = std::shared_ptr<Policy>(new Policy());  // NOLINT(cppcoreguidelines-owning-memory)
  DRUPE_ASSIGN(Layer rules, compile_layer(spec.rules, host, ""));
  policy->layers_.push_back(std::move(rules));
  if (spec.ceiling) {
    auto ceiling = compile_layer(*spec.ceiling, host, "ceiling: ");
    if (!ceiling) return std::unexpected(std::move(ceiling).error().in("The ceiling of the network policy"));
    policy->layers_.push_back(*std::move(ceiling));
  }
  policy->nat64_ = host.nat64_prefixes;
  policy->has_ipv6_ = host.has_ipv6;
  policy->generation_ = generation;
  return policy;
}

Result<Policy::Layer> Policy::compile_layer(const RuleTexts& rules, const HostFacts& host,
                                            std::string prefix) {
  Layer layer;
  layer.mode = rules.mode;
  layer.prefix = std::move(prefix);
  auto allow = RuleSet::compile(rules.allow);
  if (!allow) return std::unexpected(std::move(allow).error().in("What is allowed"));
  auto deny = RuleSet::compile(rules.deny);
  if (!deny) return std::unexpected(std::move(deny).error().in("What is denied"));
  layer.allow = *std::move(allow);
  layer.deny = *std::move(deny);
  DRUPE_ASSIGN(layer.closed, ClosedRanges::create(host, rules.allow_private));
  return layer;
}

Decision Policy::decide_name(std::string_view name) const {
  const auto normal = normal_name(name);
  if (!normal) return refused("not a host name");
  Decision decision = name_in(layers_.front(), *normal);
  if (layers_.size() > 1 && decision.allowed) {
    Decision ceiling = name_in(layers_.back(), *normal);
    if (!ceiling.allowed) return ceiling;
  }
  return decision;
}

Decision Policy::name_in(const Layer& layer, std::string_view name) {
  if (layer.mode == Mode::kNone) return refused(layer.prefix + "mode none");
  const Rule* denied = layer.deny.find_host(name, 0);
  if (denied == nullptr) denied = layer.deny.find_star(0);
  if (denied != nullptr) return refused(layer.prefix + "deny " + denied->text);
  if (layer.mode == Mode::kOpen) return {true, layer.prefix + "mode open", NameCheck::kNone, {}};
  const Rule* allowed = layer.allow.find_host(name);
  if (allowed == nullptr) allowed = layer.allow.any_star();
  if (allowed == nullptr) return refused(layer.prefix + "no rule");
  return {true, layer.prefix + "allow " + allowed->text, NameCheck::kNone, {}};
}

std::optional<std::string> Policy::why_closed(const IpAddress& address) const {
  for (const Layer& layer : layers_)
    if (auto why = layer.closed.why_closed(address)) return layer.prefix + *why;
  return std::nullopt;
}

Decision Policy::decide(const Destination& to, std::span<const std::string> pinned) const {
  if (layers_.front().mode == Mode::kNone) return refused("mode none");
  if (auto why = why_closed(to.address)) return refused(*std::move(why));
  Decision decision = connection_in(layers_.front(), to, pinned);
  if (layers_.size() == 1) return decision;
  return both(std::move(decision), connection_in(layers_.back(), to, pinned));
}

Decision Policy::both(Decision a, Decision b) {
  if (!a.allowed) return a;
  if (!b.allowed) return b;
  a.check = std::max(a.check, b.check);
  if (a.names.empty()) {
    a.names = std::move(b.names);
  } else if (!b.names.empty()) {
    std::erase_if(a.names,
                  [&](const std::string& name) { return std::ranges::find(b.names, name) == b.names.end(); });
    if (a.names.empty()) return refused("ceiling: no rule");
  }
  return a;
}

const Rule* Policy::denied_address(const Layer& layer, const Destination& to) const {
  if (const Rule* rule = layer.deny.find_address(to.address, to.port)) return rule;
  for (const IpAddress& inner : embedded_v4(to.address, nat64_))
    if (const Rule* rule = layer.deny.find_address(inner, to.port)) return rule;
  return nullptr;
}

const Rule* Policy::denied_name(const Layer& layer, std::string_view name, std::uint16_t port) {
  return layer.deny.find_host(name, port);
}

Decision Policy::connection_in(const Layer& layer, const Destination& to,
                               std::span<const std::string> pinned) const {
  if (layer.mode == Mode::kNone) return refused(layer.prefix + "mode none");
  if (const Rule* rule = denied_address(layer, to)) return refused(layer.prefix + "deny " + rule->text);
  const Rule* by_address =
      layer.mode == Mode::kOpen ? nullptr : layer.allow.find_address(to.address, to.port);
  if (layer.mode != Mode::kOpen && by_address == nullptr) return by_names(layer, to, pinned);

  Decision decision;
  decision.rule = layer.prefix + (by_address == nullptr ? "mode open" : "allow " + by_address->text);
  if (layer.deny.has_hosts()) {
    // The address alone does not say which name is meant, unless all that is known of it is denied.
    decision.check = NameCheck::kNotDenied;
    const Rule* denied = nullptr;
    for (const std::string& name : pinned) {
      denied = denied_name(layer, name, to.port);
      if (denied == nullptr) break;
    }
    if (denied != nullptr) return refused(layer.prefix + "deny " + denied->text);
  }
  decision.allowed = true;
  return decision;
}

Decision Policy::by_names(const Layer& layer, const Destination& to, std::span<const std::string> pinned) {
  Decision decision;
  decision.check = NameCheck::kRequired;
  const Rule* admitting = nullptr;
  const Rule* denying = nullptr;
  bool only_checked = false;
  for (const std::string& name : pinned) {
    const Rule* allowed = layer.allow.find_host(name, to.port);
    if (allowed == nullptr) continue;
    if (const Rule* denied = denied_name(layer, name, to.port)) {
      denying = denied;
      continue;
    }
    const bool any_protocol = allowed->port == to.port && !is_web_port(to.port);
    if (to.protocol == Protocol::kUdp && !any_protocol) {
      only_checked = true;
      continue;
    }
    if (any_protocol) decision.check = NameCheck::kIfSpoken;
    if (admitting == nullptr) admitting = allowed;
    decision.names.push_back(name);
  }
  if (admitting != nullptr) {
    decision.allowed = true;
    decision.rule = layer.prefix + "allow " + admitting->text;
    return decision;
  }
  if (denying != nullptr) return refused(layer.prefix + "deny " + denying->text);
  return refused(layer.prefix + (only_checked ? "no rule: names cannot be checked over UDP" : "no rule"));
}

bool Policy::accepts_name(const Decision& decision, std::string_view name, std::uint16_t port) const {
  if (!decision.allowed) return false;
  if (decision.check == NameCheck::kNone) return true;
  const auto normal = normal_name(name);
  if (!normal) return decision.check == NameCheck::kNotDenied;
  for (const Layer& layer : layers_)
    if (denied_name(layer, *normal, port) != nullptr) return false;
  return decision.names.empty() || std::ranges::find(decision.names, *normal) != decision.names.end();
}

std::string Policy::rule_for(std::string_view name, std::uint16_t port) const {
  const Layer& layer = layers_.front();
  const auto normal = normal_name(name);
  if (layer.mode == Mode::kOpen) return "mode open";
  const Rule* rule = normal ? layer.allow.find_host(*normal, port) : nullptr;
  if (rule == nullptr) rule = layer.allow.find_star(port);
  return layer.mode == Mode::kNone || rule == nullptr ? "no rule" : "allow " + rule->text;
}

Decision Policy::recheck(const FlowFacts& flow) const {
  const std::vector<std::string> verified(flow.verified.empty() ? 0 : 1, flow.verified);
  Decision decision = decide(flow.destination, flow.verified.empty() ? flow.names : verified);
  if (!decision.allowed) return decision;
  if (!flow.verified.empty() && !accepts_name(decision, flow.verified, flow.destination.port))
    return refused("no rule for " + flow.verified);
  // A flow that was admitted without saying its name cannot be asked for it any more.
  if (flow.verified.empty() && decision.check > flow.check && decision.check >= NameCheck::kIfSpoken)
    return refused("no rule without a name");
  return decision;
}

}  // namespace drupe::net
