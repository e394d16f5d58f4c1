#include "api/routes/glob.h"

#include <string>

#include <gtest/gtest.h>

namespace drupe::api {
namespace {

TEST(Glob, Matches) {
  for (const auto& [pattern, path] : {std::pair{"*.py", "main.py"},
                                      {"*.py", "src/deep/main.py"},
                                      {"src/*.py", "src/main.py"},
                                      {"src/**", "src/a/b"},
                                      {"src/**/*.py", "src/main.py"},
                                      {"src/**/*.py", "src/a/b/main.py"},
                                      {"**/b", "b"},
                                      {"**/b", "a/b"},
                                      {"a/**/b", "a/x/y/b"},
                                      {"a?c", "abc"},
                                      {"*", "x"},
                                      {"a*b*c", "axxbyyc"},
                                      {"", ""}})
    EXPECT_TRUE(matches_glob(pattern, path)) << pattern << " " << path;
}

TEST(Glob, DoesNotMatch) {
  for (const auto& [pattern, path] : {std::pair{"*.py", "main.pyc"},
                                      {"src/*.py", "src/a/main.py"},
                                      {"src/*.py", "lib/main.py"},
                                      {"a?c", "ac"},
                                      {"a/?/c", "a//c"},
                                      {"**/b", "ab"},
                                      {"a/**/b", "a/xb"},
                                      {"a/**/b", "a/x/yb"},
                                      {"", "x"}})
    EXPECT_FALSE(matches_glob(pattern, path)) << pattern << " " << path;
}

TEST(Glob, TakesNoLongerForHostilePatterns) {
  std::string pattern;
  for (int i = 0; i < 64; ++i) pattern += "*a";
  EXPECT_FALSE(matches_glob(pattern + "b", std::string(4096, 'a')));
}

}  // namespace
}  // namespace drupe::api
