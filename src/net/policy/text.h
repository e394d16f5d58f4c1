// Small checks on hostile text that the parsers of this folder and its neighbours share.
#pragma once

#include <string>
#include <string_view>

namespace drupe::net {

[[nodiscard]] constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
[[nodiscard]] constexpr char to_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
[[nodiscard]] constexpr bool is_alnum(char c) {
  return is_digit(c) || (to_lower(c) >= 'a' && to_lower(c) <= 'z');
}
[[nodiscard]] std::string to_lower(std::string_view text);
[[nodiscard]] bool equal_ignoring_case(std::string_view a, std::string_view b);
/// Without spaces, tabs, CR and LF at both ends.
[[nodiscard]] std::string_view trimmed(std::string_view text);
/// `text` in single quotes for an error message: at most 100 bytes of it, with '?' for what is not printable
/// ASCII.
[[nodiscard]] std::string shown(std::string_view text);

}  // namespace drupe::net
