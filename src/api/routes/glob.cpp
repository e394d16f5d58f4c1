#include "api/routes/glob.h"

#include <vector>

namespace drupe::api {

bool matches_glob(std::string_view pattern, std::string_view path) {
  if (pattern.find('/') == std::string_view::npos) path.remove_prefix(path.rfind('/') + 1);
  // reached[i]: the first i characters of the pattern match what was read of the path.
  std::vector<bool> reached(pattern.size() + 1), next(pattern.size() + 1);
  const auto skip_stars = [&](std::vector<bool>& at, bool name_begins) {
    for (std::size_t i = 0; i < pattern.size(); ++i)
      if (at[i] && pattern[i] == '*') at[i + 1] = true;
    // "**/" also stands for no directory at all.
    for (std::size_t i = 0; name_begins && i + 2 < pattern.size(); ++i)
      if (at[i] && pattern.substr(i, 3) == "**/" && (i == 0 || pattern[i - 1] == '/')) at[i + 3] = true;
    for (std::size_t i = 0; i < pattern.size(); ++i)
      if (at[i] && pattern[i] == '*') at[i + 1] = true;
  };
  reached[0] = true;
  skip_stars(reached, true);
  for (const char c : path) {
    next.assign(next.size(), false);
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      if (!reached[i]) continue;
      const bool twice = pattern[i] == '*' && ((i + 1 < pattern.size() && pattern[i + 1] == '*') ||
                                               (i > 0 && pattern[i - 1] == '*'));
      if (pattern[i] == '*' && (c != '/' || twice)) next[i] = true;
      if ((pattern[i] == '?' && c != '/') || (pattern[i] == c && c != '*')) next[i + 1] = true;
    }
    skip_stars(next, c == '/');
    reached.swap(next);
  }
  return reached[pattern.size()];
}

}  // namespace drupe::api
