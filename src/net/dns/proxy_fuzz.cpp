// The resolver between a hostile guest and a hostile upstream: no closed address is pinned or told, whatever
// both send.
#include <cstdlib>

#include "net/dns/proxy.h"

namespace {

using namespace drupe;
using namespace drupe::net;
using namespace drupe::net::dns;

std::shared_ptr<const Policy> policy() {
  RuleTexts rules;
  rules.mode = Mode::kPolicy;
  rules.allow = {{"a", {}}, {"*.b", {}}};
  static const auto compiled = Policy::compile({rules, {}}, {{}, {}, true}, 1);
  if (!compiled) std::abort();
  return *compiled;
}

void check(const Output& out) {
  for (const Answer& answer : out.answers) {
    const auto message = parse_message(as_bytes(answer.message));
    if (!message || !message->response) std::abort();
    if (answer.transport == Transport::kUdp && answer.message.size() > Proxy::kUdpCeiling) std::abort();
    for (const Record& record : message->answers) {
      if (record.type != kA && record.type != kAaaa) continue;
      const auto address = IpAddress::from_bytes(as_bytes(record.data));
      if (!address || policy()->why_closed(*address)) std::abort();
    }
  }
  for (const Forward& forward : out.forwards) {
    const auto message = parse_message(as_bytes(forward.message));
    if (!message || !policy()->decide_name(message->questions.at(0).name.text()).allowed) std::abort();
  }
}

}  // namespace

/// Input: a size byte and the guest's query, then the upstream's answer, whose identifier and question are
/// made right.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t query_size = std::min<std::size_t>(data[0], size - 1);
  const Transport transport = (data[1] & 1) != 0 ? Transport::kTcp : Transport::kUdp;
  Pins pins;
  EgressLog log([] { return 0; });
  Proxy proxy(policy(), pins, log, [] { return std::uint16_t{0x1234}; }, {});
  const Time now{};
  const Output asked = proxy.on_query(1, transport, {data + 1, query_size}, now);
  check(asked);
  std::string answer(reinterpret_cast<const char*>(data + 1 + query_size), size - 1 - query_size);
  // Without an allowed query of the input's own, one is made, so that answers are always exercised.
  Output forwarded = asked;
  if (asked.forwards.empty()) {
    Message query;
    query.questions.push_back({*Name::from_text("a"), kA, kInternet});
    forwarded = proxy.on_query(2, transport, as_bytes(write_message(query, 512)), now);
    check(forwarded);
  }
  if (forwarded.forwards.empty() || answer.size() < 2) return 0;
  answer[0] = 0x12;
  answer[1] = 0x34;
  check(
      proxy.on_upstream(forwarded.forwards[0].token, forwarded.forwards[0].transport, as_bytes(answer), now));
  check(proxy.on_upstream(forwarded.forwards[0].token, Transport::kTcp, as_bytes(answer), now));
  check(proxy.on_time(now + Proxy::kGiveUp));
  if (proxy.outstanding() != 0) std::abort();
  return 0;
}
