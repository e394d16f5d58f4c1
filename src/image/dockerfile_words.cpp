#include "image/dockerfile_words.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "image/text.h"

namespace drupe {
namespace {

constexpr int kMostNesting = 8;

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
bool is_name_char(char c) {
  return is_alnum(c) || c == '_';
}

class Expander {
 public:
  Expander(const Variables& variables, char escape, bool quotes)
      : variables_(variables), escape_(escape), quotes_(quotes) {}

  Result<std::string> run(std::string_view text, int depth) {
    if (depth > kMostNesting) return fail(ErrorCode::kInvalidArgument, "variables are nested too deep");
    std::string out;
    char quote = 0;
    while (!text.empty()) {
      const char c = text.front();
      if (quotes_ && c == quote) {
        quote = 0;
        text.remove_prefix(1);
      } else if (quotes_ && quote == 0 && (c == '"' || c == '\'')) {
        quote = c;
        text.remove_prefix(1);
      } else if (c == escape_ && quote != '\'' && text.size() > 1) {
        // Within double quotes, and in a heredoc, only these are escaped.
        const bool taken =
            (quotes_ && quote == 0) || text[1] == '$' || text[1] == escape_ || (quotes_ && text[1] == '"');
        if (!taken) out += c;
        out += text[1];
        text.remove_prefix(2);
      } else if (c == '$' && quote != '\'') {
        text.remove_prefix(1);
        DRUPE_ASSIGN(const std::string value, variable(text, depth));
        out += value;
      } else {
        out += c;
        text.remove_prefix(1);
      }
      if (out.size() > kMostExpanded)
        return fail(ErrorCode::kInvalidArgument, "a value is longer than 32 KiB");
    }
    return out;
  }

 private:
  [[nodiscard]] const std::string* find(std::string_view name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? nullptr : &found->second;
  }

  /// `text` begins behind the '$' and is taken on.
  Result<std::string> variable(std::string_view& text, int depth) {
    if (!text.starts_with('{')) {
      std::size_t end = 0;
      while (end < text.size() && is_name_char(text[end])) ++end;
      if (end == 0) return std::string("$");
      const std::string* const value = find(text.substr(0, end));
      text.remove_prefix(end);
      return value == nullptr ? std::string() : *value;
    }
    const auto close = closing_brace(text);
    if (close == std::string_view::npos) return fail(ErrorCode::kInvalidArgument, "a ${ has no }");
    std::string_view inner = text.substr(1, close - 1);
    text.remove_prefix(close + 1);
    std::size_t end = 0;
    while (end < inner.size() && is_name_char(inner[end])) ++end;
    if (end == 0) return fail(ErrorCode::kInvalidArgument, "a ${} has no name");
    const std::string* value = find(inner.substr(0, end));
    inner.remove_prefix(end);
    if (inner.empty()) return value == nullptr ? std::string() : *value;
    if (inner.front() == ':') {
      if (value != nullptr && value->empty()) value = nullptr;
      inner.remove_prefix(1);
    }
    const char form = inner.empty() ? '\0' : inner.front();
    if (form != '-' && form != '+')
      return fail(ErrorCode::kInvalidArgument, "of the forms of ${NAME...} only :-, :+, - and + are known");
    inner.remove_prefix(1);
    if (form == '-' && value != nullptr) return *value;
    if (form == '+' && value == nullptr) return std::string();
    return run(inner, depth + 1);
  }

  std::size_t closing_brace(std::string_view text) const {
    int open = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == escape_) {
        ++i;
      } else if (text[i] == '{') {
        ++open;
      } else if (text[i] == '}' && --open == 0) {
        return i;
      }
    }
    return std::string_view::npos;
  }

  const Variables& variables_;
  char escape_;
  bool quotes_;
};

}  // namespace

std::string_view trim_blanks(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool is_variable_name(std::string_view text) {
  return !text.empty() && !is_digit(text.front()) && std::ranges::all_of(text, is_name_char);
}

Result<std::vector<std::string>> split_words(std::string_view text, char escape) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && is_blank(c)) {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
      continue;
    }
    in_word = true;
    word += c;
    if (c == escape && quote != '\'' && i + 1 < text.size())
      word += text[++i];
    else if (c == quote)
      quote = 0;
    else if (quote == 0 && (c == '"' || c == '\''))
      quote = c;
  }
  if (quote != 0) return fail(ErrorCode::kInvalidArgument, "a quote does not end");
  if (in_word) words.push_back(std::move(word));
  return words;
}

Result<std::string> expand_word(std::string_view text, const Variables& variables, char escape) {
  return Expander(variables, escape, true).run(text, 0);
}

Result<std::string> expand_text(std::string_view text, const Variables& variables, char escape) {
  return Expander(variables, escape, false).run(text, 0);
}

std::optional<std::vector<std::string>> json_words(std::string_view text) {
  if (!text.starts_with('[')) return std::nullopt;
  const auto parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_array()) return std::nullopt;
  std::vector<std::string> words;
  for (const auto& item : parsed) {
    const auto* const word = item.get_ptr<const std::string*>();
    if (word == nullptr || word->find('\0') != std::string::npos) return std::nullopt;
    words.push_back(*word);
  }
  return words;
}

}  // namespace drupe
