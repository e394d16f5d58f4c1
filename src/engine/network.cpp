#include "engine/network.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>

#include <fcntl.h>

#include <arpa/inet.h>

#include "base/files.h"
#include "net/policy/policy.h"
#include "shim/host_resolvers.h"

namespace drupe {
namespace {

constexpr std::size_t kMaxPublications = 256;

net::Mode mode_of(NetworkMode mode) {
  switch (mode) {
    case NetworkMode::kOpen:
      return net::Mode::kOpen;
    case NetworkMode::kPolicy:
      return net::Mode::kPolicy;
    case NetworkMode::kNone:
      break;
  }
  return net::Mode::kNone;
}

Result<std::vector<NetworkRecord::Rule>> expand(const std::vector<std::string>& rules,
                                                const net::PresetSource& source) {
  DRUPE_ASSIGN(const auto expanded, net::expand_presets(rules, source));
  std::vector<NetworkRecord::Rule> out;
  for (const auto& rule : expanded) out.push_back({rule.text, rule.origin});
  return out;
}

std::vector<net::RuleText> texts(const std::vector<NetworkRecord::Rule>& rules) {
  std::vector<net::RuleText> out;
  for (const auto& rule : rules) out.push_back({rule.text, rule.origin});
  return out;
}

std::vector<net::RuleText> texts(const std::vector<std::string>& rules) {
  std::vector<net::RuleText> out;
  for (const auto& rule : rules) out.push_back({rule, {}});
  return out;
}

net::PolicySpec spec_of(const NetworkRecord& network, const std::optional<NetworkOptions>& ceiling) {
  net::PolicySpec spec;
  spec.rules = {mode_of(network.mode), texts(network.allow), texts(network.deny), network.allow_private};
  if (ceiling)
    spec.ceiling = net::RuleTexts{mode_of(ceiling->mode), texts(ceiling->allow), texts(ceiling->deny),
                                  ceiling->allow_private};
  return spec;
}

bool is_address(const std::string& text) {
  in6_addr raw{};
  return ::inet_pton(AF_INET, text.c_str(), &raw) == 1 || ::inet_pton(AF_INET6, text.c_str(), &raw) == 1;
}

std::optional<std::uint16_t> port_of(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

Status check_publications(const NetworkRecord& network) {
  if (network.publications.size() > kMaxPublications)
    return fail(ErrorCode::kInvalidArgument, "More than 256 ports cannot be published");
  for (std::size_t i = 0; i < network.publications.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const auto& one = network.publications[i];
      const auto& other = network.publications[j];
      if (one.host_port == other.host_port && one.address == other.address)
        return fail(ErrorCode::kInvalidArgument,
                    "The port " + std::to_string(one.host_port) + " of the host is published twice");
    }
  if (network.mode == NetworkMode::kNone && !network.publications.empty())
    return fail(ErrorCode::kInvalidArgument, "A sandbox without a network cannot publish ports",
                "Add --net open, or --net policy with what it may reach (nothing: no --allow).");
  return {};
}

/// A default route that is not the one that refuses everything; from /proc/net/ipv6_route (destination and
/// its prefix length first, the device last).
bool host_has_ipv6() {
  const auto text = read_file(AT_FDCWD, "/proc/net/ipv6_route", std::size_t{4} << 20);
  if (!text) return false;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("00000000000000000000000000000000 00 ") && !line.ends_with(" lo")) return true;
  return false;
}

}  // namespace

Result<net::Publication> parse_publication(std::string_view text) {
  const auto mistake = [&] {
    return fail(ErrorCode::kInvalidArgument, "'" + std::string(text.substr(0, 80)) + "' publishes no port",
                "Write [ADDRESS:]HOSTPORT:GUESTPORT, for example 8080:80 or 0.0.0.0:8080:80.");
  };
  net::Publication out;
  out.address = "127.0.0.1";
  const auto last = text.rfind(':');
  if (last == std::string_view::npos) return mistake();
  std::string_view host = text.substr(0, last);
  if (const auto colon = host.rfind(':'); colon != std::string_view::npos) {
    out.address = host.substr(0, colon);
    if (out.address.starts_with('[') && out.address.ends_with(']'))
      out.address = out.address.substr(1, out.address.size() - 2);
    else if (out.address.find(':') != std::string::npos)
      return mistake();
    host.remove_prefix(colon + 1);
  }
  const auto host_port = port_of(host);
  const auto guest_port = port_of(text.substr(last + 1));
  if (!host_port || !guest_port || !is_address(out.address)) return mistake();
  out.host_port = *host_port;
  out.guest_port = *guest_port;
  return out;
}

Result<NetworkRecord> make_network(const NetworkOptions& options,
                                   const std::optional<NetworkOptions>& ceiling,
                                   const net::PresetSource& source) {
  NetworkRecord network;
  network.mode = options.mode;
  if (options.mode != NetworkMode::kPolicy && !options.allow.empty())
    return fail(ErrorCode::kInvalidArgument, "Allow rules need the network mode 'policy'");
  if (options.mode == NetworkMode::kNone &&
      (!options.deny.empty() || !options.allow_private.empty() || options.quota_bytes != 0))
    return fail(ErrorCode::kInvalidArgument, "A sandbox without a network needs no rules for it",
                "Choose --net open or --allow RULE.");
  DRUPE_ASSIGN(network.allow, expand(options.allow, source));
  DRUPE_ASSIGN(network.deny, expand(options.deny, source));
  network.allow_private = options.allow_private;
  network.quota_bytes = options.quota_bytes;
  for (const auto& text : options.publish) {
    DRUPE_ASSIGN(net::Publication one, parse_publication(text));
    network.publications.push_back(std::move(one));
  }
  DRUPE_TRY(check_publications(network));
  // The host's own addresses do not matter for whether rules make sense.
  DRUPE_TRY(net::Policy::compile(spec_of(network, ceiling), net::HostFacts{}, 0));
  return network;
}

std::string encode_policy(const NetworkRecord& network, const std::optional<NetworkOptions>& ceiling) {
  return net::encode_spec(spec_of(network, ceiling));
}

NetSpec host_net_spec() {
  NetSpec spec;
  spec.follow_resolvers = true;
  HostResolvers host;
  if (const auto text = read_file(AT_FDCWD, kResolvConf, kMaxResolvConf)) host = parse_resolv_conf(*text);
  spec.resolvers = std::move(host.resolvers);
  spec.search = std::move(host.search);
  if (const char* own = std::getenv("DRUPE_RESOLVERS"); own != nullptr && *own != '\0') {
    spec.resolvers.clear();
    spec.follow_resolvers = false;
    std::istringstream list(own);
    for (std::string one; std::getline(list, one, ',');)
      if (!one.empty()) spec.resolvers.push_back(one);
  }
  // resolv.conf(5): without a nameserver the resolver is on this machine.
  if (spec.resolvers.empty()) spec.resolvers = {"127.0.0.1"};
  spec.ipv6 = host_has_ipv6();
  return spec;
}

}  // namespace drupe
