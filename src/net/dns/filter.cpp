#include "net/dns/filter.h"

#include <algorithm>

#include "net/policy/pins.h"

namespace drupe::net::dns {
namespace {

constexpr auto kCeiling = static_cast<std::uint32_t>(Pins::kCeiling.count());

Record with_bounded_ttl(Record record) {
  // RFC 2181, 8: a value with the top bit set means 0.
  if ((record.ttl & 0x80000000U) != 0) record.ttl = 0;
  record.ttl = std::min(record.ttl, kCeiling);
  return record;
}

}  // namespace

Filtered filter_answer(const Message& upstream, const Question& question, const Policy& policy) {
  Filtered out;
  std::uint32_t ttl = kCeiling;
  Name owner = question.name;
  if (question.type != kCname) {
    for (std::size_t links = 0; links < kLongestChain; ++links) {
      const auto alias = std::ranges::find_if(upstream.answers, [&](const Record& record) {
        return record.type == kCname && record.klass == kInternet && record.name.same_as(owner);
      });
      if (alias == upstream.answers.end()) break;
      const auto target = name_in_data(alias->data);
      if (!target) break;
      out.answers.push_back(with_bounded_ttl(*alias));
      ttl = std::min(ttl, out.answers.back().ttl);
      owner = *target;
    }
  }
  for (const Record& record : upstream.answers) {
    if (record.type != question.type || record.klass != kInternet || !record.name.same_as(owner)) continue;
    if (record.type == kA || record.type == kAaaa) {
      const auto address = IpAddress::from_bytes(as_bytes(record.data));
      if (!address) continue;
      if (auto why = policy.why_closed(*address)) {
        out.dropped.emplace_back(*address, *std::move(why));
        continue;
      }
      out.addresses.push_back(*address);
    }
    out.answers.push_back(with_bounded_ttl(record));
    ttl = std::min(ttl, out.answers.back().ttl);
  }
  out.ttl = std::chrono::seconds(ttl);
  for (const Record& record : upstream.authority)
    if (record.type == kSoa && record.klass == kInternet && out.authority.empty())
      out.authority.push_back(with_bounded_ttl(record));
  // A positive answer needs no authority; after a drop the SOA would claim that there is nothing.
  if (!out.addresses.empty() || !out.dropped.empty() ||
      (!out.answers.empty() && out.answers.back().type == question.type))
    out.authority.clear();
  return out;
}

}  // namespace drupe::net::dns
