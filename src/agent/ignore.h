// Patterns in the manner of gitignore(5), as a caller of a walk hands them over.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace drupe::agent {

/// Lines as in a .gitignore at the top of the tree: `*`, `?`, `[...]`, `**`, a leading `!`, a leading or
/// inner `/`, a trailing `/`; blank lines and `#` comments are passed over. The last pattern that matches
/// decides.
class IgnoreRules {
 public:
  explicit IgnoreRules(const std::vector<std::string>& lines);
  /// `path` is relative to the top, without a slash at either end. Parents are not looked at: a walk does not
  /// enter an ignored directory.
  [[nodiscard]] bool ignores(std::string_view path, bool directory) const;

 private:
  struct Rule {
    std::string pattern;
    bool negated = false, only_directories = false, anchored = false;
  };
  std::vector<Rule> rules_;
};

/// Whether `text` matches the shell pattern; `*` and `?` stop at slashes, `**` as a whole component does not.
[[nodiscard]] bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace drupe::agent
