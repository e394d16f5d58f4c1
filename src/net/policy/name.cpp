#include "net/policy/name.h"

#include <algorithm>

#include "net/policy/text.h"

namespace drupe::net {

std::size_t name_mistake(std::string_view text) {
  constexpr std::size_t kLongestName = 253;  // RFC 1035, 2.3.4, without the root's length byte and the dot
  constexpr std::size_t kLongestLabel = 63;
  std::string_view name = text;
  if (name.ends_with('.')) name.remove_suffix(1);
  if (name.empty()) return 0;
  std::size_t label = 0;
  for (std::size_t at = 0; at <= name.size(); ++at) {
    if (at == kLongestName + 1 && name.size() > kLongestName) return kLongestName;
    if (at == name.size() || name[at] == '.') {
      if (at == label) return at;
      if (at - label > kLongestLabel) return label + kLongestLabel;
      if (at == name.size()) break;
      label = at + 1;
    } else if (!is_alnum(name[at]) && name[at] != '-' && name[at] != '_') {
      return at;
    }
  }
  return std::ranges::all_of(name.substr(label), is_digit) ? label : text.size();
}

std::optional<std::string> normal_name(std::string_view text) {
  if (text.empty() || name_mistake(text) != text.size()) return std::nullopt;
  if (text.ends_with('.')) text.remove_suffix(1);
  return to_lower(text);
}

bool is_in_domain(std::string_view name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return false;
  return name.size() == suffix.size() || name[name.size() - suffix.size() - 1] == '.';
}

}  // namespace drupe::net
