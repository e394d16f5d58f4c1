// Words, quotes and variables of Dockerfiles.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace drupe {

using Variables = std::map<std::string, std::string, std::less<>>;

/// Most bytes that one value may have after variables were replaced.
inline constexpr std::size_t kMostExpanded = 32 * 1024;

/// Splits at blanks outside of quotes; quotes and escapes stay in the words. kInvalidArgument for a quote
/// that does not end.
Result<std::vector<std::string>> split_words(std::string_view text, char escape);
/// Removes quotes and escapes and replaces $NAME, ${NAME}, ${NAME:-word}, ${NAME:+word} and their forms
/// without ':'. Single quotes keep what they have. kInvalidArgument for other forms, kLimit above the bound.
Result<std::string> expand_word(std::string_view text, const Variables& variables, char escape);
/// The same for the text of a heredoc: variables only, quotes are text.
Result<std::string> expand_text(std::string_view text, const Variables& variables, char escape);
/// ["a", "b"]; nothing when the text is not that.
[[nodiscard]] std::optional<std::vector<std::string>> json_words(std::string_view text);
/// [A-Za-z_][A-Za-z0-9_]*
[[nodiscard]] bool is_variable_name(std::string_view text);
[[nodiscard]] std::string_view trim_blanks(std::string_view text);

}  // namespace drupe
