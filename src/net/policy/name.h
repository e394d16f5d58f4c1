// Host names in the one form that rules, pins and inspectors compare.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace drupe::net {

/// Lower case, without the dot at the end; nullopt for what is no host name: a label that is empty or longer
/// than 63 bytes, more than 253 bytes, a byte other than letters, digits, '-' and '_' (names of other scripts
/// come as "xn--..."), or a last label of digits only, which others read as an IPv4 address.
[[nodiscard]] std::optional<std::string> normal_name(std::string_view text);

/// True when `name` is `suffix` or ends with "." + `suffix`; both normalised.
[[nodiscard]] bool is_in_domain(std::string_view name, std::string_view suffix);

/// Offset of the first byte for which `text` is no host name, text.size() when it is one. The dot at the end
/// is allowed.
[[nodiscard]] std::size_t name_mistake(std::string_view text);

}  // namespace drupe::net
