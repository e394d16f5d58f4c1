// Rules and whole policies from hostile text: what is accepted keeps its meaning, and closed stays closed.
#include <cstdlib>

#include "base/bytes.h"
#include "net/policy/name.h"
#include "net/policy/policy.h"
#include "net/policy/presets.h"

namespace {

using namespace drupe;
using namespace drupe::net;

void check_rule(std::string_view text) {
  const auto rule = parse_rule(text);
  if (!rule) {
    if (rule.error().message.find("column ") == std::string::npos) std::abort();
    return;
  }
  if (rule->by_name() && normal_name(rule->host) != rule->host) std::abort();
  if (rule->kind == Rule::Kind::kNetwork) {
    const auto again = Cidr::parse(rule->network.to_string());
    if (!again || *again != rule->network) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = as_text({data, size});
  static_cast<void>(decode_spec(text));
  PolicySpec spec;
  spec.rules.mode = Mode::kPolicy;
  std::string_view rest = text;
  while (!rest.empty() && spec.rules.allow.size() < 64) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    check_rule(line);
    if (line.starts_with('!'))
      spec.rules.allow_private.emplace_back(line.substr(1));
    else if (parse_rule(line))
      spec.rules.allow.push_back({std::string(line), {}});
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const auto policy = Policy::compile(spec, {{IpAddress::v4(0xc0000205)}, {}, true}, 1);
  if (!policy) return 0;
  // Whatever the rules and openings, these are no destinations.
  for (const char* never : {"0.0.0.0", "255.255.255.255", "224.0.0.1", "240.0.0.1", "::", "ff02::1"})
    if ((*policy)->decide({Protocol::kTcp, *IpAddress::parse(never), 443}, {}).allowed) std::abort();
  const std::string name = normal_name(text.substr(0, 40)).value_or("a.example");
  const std::vector<std::string> pinned{name};
  const Decision decision = (*policy)->decide({Protocol::kTcp, IpAddress::v4(0xc0000201), 443}, pinned);
  if (decision.allowed && decision.check >= NameCheck::kIfSpoken && decision.names.empty()) std::abort();
  return 0;
}
