#include "agent/ignore.h"

#include <cstddef>

namespace drupe::agent {
namespace {

// Backtracking steps of one match: hostile patterns like `a*a*a*b` end as "no match" instead of never.
constexpr int kMaxSteps = 100'000;

/// One `[...]`; moves `pattern` behind it. An unclosed one matches nothing.
bool match_class(std::string_view& pattern, char c) {
  pattern.remove_prefix(1);
  const bool negated = !pattern.empty() && (pattern[0] == '!' || pattern[0] == '^');
  if (negated) pattern.remove_prefix(1);
  bool found = false;
  for (bool first = true; !pattern.empty() && (first || pattern[0] != ']'); first = false) {
    char low = pattern[0];
    if (low == '\\' && pattern.size() > 1) {
      pattern.remove_prefix(1);
      low = pattern[0];
    }
    pattern.remove_prefix(1);
    char high = low;
    if (pattern.size() > 1 && pattern[0] == '-' && pattern[1] != ']') {
      high = pattern[1];
      pattern.remove_prefix(2);
    }
    found = found || (c >= low && c <= high);
  }
  if (pattern.empty()) return false;
  pattern.remove_prefix(1);
  return found != negated && c != '/';
}

bool match(std::string_view pattern, std::string_view text, int& steps) {
  while (!pattern.empty()) {
    if (++steps > kMaxSteps) return false;
    if (pattern[0] == '*') {
      const bool deep = pattern.starts_with("**");
      if (deep && (pattern.size() == 2 || pattern[2] == '/')) {
        if (pattern.size() == 2) return true;
        pattern.remove_prefix(3);
        // `**/` is any number of whole components, none included.
        while (true) {
          if (match(pattern, text, steps)) return true;
          const auto slash = text.find('/');
          if (slash == std::string_view::npos || steps > kMaxSteps) return false;
          text.remove_prefix(slash + 1);
        }
      }
      while (!pattern.empty() && pattern[0] == '*') pattern.remove_prefix(1);
      while (true) {
        if (match(pattern, text, steps)) return true;
        if (text.empty() || text[0] == '/' || steps > kMaxSteps) return false;
        text.remove_prefix(1);
      }
    }
    if (text.empty()) return false;
    if (pattern[0] == '[') {
      if (!match_class(pattern, text[0])) return false;
    } else if (pattern[0] == '?') {
      if (text[0] == '/') return false;
      pattern.remove_prefix(1);
    } else {
      if (pattern[0] == '\\' && pattern.size() > 1) pattern.remove_prefix(1);
      if (pattern[0] != text[0]) return false;
      pattern.remove_prefix(1);
    }
    text.remove_prefix(1);
  }
  return text.empty();
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view text) {
  int steps = 0;
  return match(pattern, text, steps);
}

IgnoreRules::IgnoreRules(const std::vector<std::string>& lines) {
  for (const auto& line : lines) {
    std::string_view text = line;
    while (!text.empty() && (text.back() == ' ' || text.back() == '\r' || text.back() == '\n')) {
      if (text.size() > 1 && text[text.size() - 2] == '\\') break;
      text.remove_suffix(1);
    }
    if (text.empty() || text[0] == '#') continue;
    Rule rule;
    if (text[0] == '!') {
      rule.negated = true;
      text.remove_prefix(1);
    }
    if (text.ends_with('/')) {
      rule.only_directories = true;
      text.remove_suffix(1);
    }
    rule.anchored = text.find('/') != std::string_view::npos;
    if (text.starts_with('/')) text.remove_prefix(1);
    if (text.empty()) continue;
    rule.pattern = text;
    rules_.push_back(std::move(rule));
  }
}

bool IgnoreRules::ignores(std::string_view path, bool directory) const {
  const auto slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (rule->only_directories && !directory) continue;
    if (glob_match(rule->pattern, rule->anchored ? path : name)) return !rule->negated;
  }
  return false;
}

}  // namespace drupe::agent
