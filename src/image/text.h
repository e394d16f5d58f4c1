// Small checks on hostile text that several readers share.
#pragma once

#include <string>
#include <string_view>

namespace drupe {

[[nodiscard]] constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
[[nodiscard]] constexpr bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
[[nodiscard]] constexpr bool is_alnum(char c) {
  return is_digit(c) || is_lower(c) || (c >= 'A' && c <= 'Z');
}
[[nodiscard]] constexpr char to_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
[[nodiscard]] std::string to_lower(std::string_view text);

/// `text` in single quotes for an error message: at most 100 bytes of it, with '?' for what is not printable
/// ASCII.
[[nodiscard]] std::string shown(std::string_view text);

}  // namespace drupe
