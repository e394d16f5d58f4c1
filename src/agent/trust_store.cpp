#include "agent/trust_store.h"

#include <algorithm>
#include <unordered_set>

namespace drupe::agent {
namespace {

constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----";
constexpr std::string_view kEnd = "-----END CERTIFICATE-----";
constexpr std::string_view kOursBegin = "# Authorities that the host trusts: Drupe replaces what follows.\n";
constexpr std::string_view kOursEnd = "# End of the authorities that the host trusts.\n";

/// The base64 text of the next block at or after `at`, without line ends; empty at the end. `at` moves behind
/// it.
std::string next_block(std::string_view text, std::size_t& at) {
  const std::size_t begin = text.find(kBegin, at);
  const std::size_t end = begin == std::string_view::npos ? begin : text.find(kEnd, begin);
  if (end == std::string_view::npos) return {};
  at = end + kEnd.size();
  std::string block(text.substr(begin + kBegin.size(), end - begin - kBegin.size()));
  std::erase_if(block, [](char c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t'; });
  return block;
}

std::string without_ours(std::string_view old) {
  const std::size_t begin = old.find(kOursBegin);
  const std::size_t end = begin == std::string_view::npos ? begin : old.find(kOursEnd, begin);
  if (end == std::string_view::npos) return std::string(old);
  std::string text(old.substr(0, begin));
  return text.append(old.substr(end + kOursEnd.size()));
}

}  // namespace

MergedStore merge_store(std::string_view old, const std::vector<TrustedAuthority>& authorities) {
  MergedStore merged;
  merged.text = without_ours(old);
  std::unordered_set<std::string> known;
  std::size_t at = 0;
  for (std::string block = next_block(merged.text, at); !block.empty(); block = next_block(merged.text, at))
    known.insert(std::move(block));
  for (const auto& one : authorities) {
    std::size_t start = 0;
    if (known.insert(next_block(one.pem, start)).second) merged.added.push_back(one);
  }
  if (merged.added.empty()) return merged;
  if (!merged.text.empty() && !merged.text.ends_with('\n')) merged.text += '\n';
  merged.text += kOursBegin;
  for (const auto& one : merged.added) merged.text += one.pem;
  merged.text += kOursEnd;
  return merged;
}

}  // namespace drupe::agent
