#include "image/recipe.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "base/files.h"

namespace drupe {
namespace {

constexpr std::size_t kMaxRecipe = 64 * 1024;
constexpr std::size_t kMaxLock = 1024 * 1024;
constexpr std::string_view kSuffix = ".recipe";

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  while (true) {
    const auto begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') return words;
    line.remove_prefix(begin);
    const auto end = line.find_first_of(" \t\r");
    words.emplace_back(line.substr(0, end));
    line.remove_prefix(end == std::string_view::npos ? line.size() : end);
  }
}

/// Package names and suites become arguments of programs, so they must not look like options or lists.
bool is_plain(std::string_view word) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789+-.";
  return !word.empty() && word.front() != '-' && word.find_first_not_of(kAllowed) == std::string_view::npos;
}

bool is_path_below_root(std::string_view path) {
  return !path.empty() && path.front() != '/' && path.find("..") == std::string_view::npos;
}

/// True when the line was understood.
bool take_line(const std::vector<std::string>& words, Recipe& recipe) {
  const std::string& key = words[0];
  const std::vector<std::string> values(words.begin() + 1, words.end());
  if (values.empty()) return false;
  if (key == "packages") {
    recipe.packages.insert(recipe.packages.end(), values.begin(), values.end());
    return std::ranges::all_of(values, is_plain);
  }
  if (key == "cmd") {
    recipe.cmd = values;
    return true;
  }
  if (key == "npm") {
    if (values.size() != 2 || !is_plain(values[0]) || !values[1].starts_with("sha512-")) return false;
    recipe.npm_version = values[0];
    recipe.npm_integrity = values[1];
    return true;
  }
  if (key == "pip") {
    if (values.size() != 2 || !is_plain(values[0]) || !is_plain(values[1])) return false;
    recipe.pip_lock = values[0];
    recipe.pip_python = values[1];
    return true;
  }
  if (values.size() != 1) return false;
  if (key == "suite") {
    recipe.suite = values[0];
    return is_plain(values[0]);
  }
  if (key == "remove") {
    recipe.removed.push_back(values[0]);
    return is_path_below_root(values[0]);
  }
  if (key == "env") {
    recipe.env.push_back(values[0]);
    return values[0].find('=') != std::string::npos && values[0].front() != '=';
  }
  if (key == "workdir") {
    recipe.working_dir = values[0];
    return values[0].front() == '/';
  }
  return false;
}

/// "devbox:1" -> "devbox-1.recipe"; nothing for names that could leave the folder.
std::string file_name(std::string_view image) {
  const auto colon = image.find(':');
  if (colon == std::string_view::npos) return {};
  const std::string_view tag = image.substr(colon + 1);
  if (!is_plain(image.substr(0, colon)) || !is_plain(tag)) return {};
  return std::string(image.substr(0, colon)) + "-" + std::string(tag) + std::string(kSuffix);
}

}  // namespace

Result<Recipe> parse_recipe(std::string_view text) {
  Recipe recipe;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const auto end = text.find('\n');
    const auto words = words_of(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (words.empty()) continue;
    if (!take_line(words, recipe))
      return fail(ErrorCode::kInvalidArgument,
                  "Line " + std::to_string(number) + " of the recipe is not understood");
  }
  if (recipe.suite.empty()) return fail(ErrorCode::kInvalidArgument, "The recipe names no suite");
  return recipe;
}

Result<std::string> recipe_folder() {
  if (const char* folder = std::getenv("DRUPE_RECIPES"); folder != nullptr && *folder != 0)
    return std::string(folder);
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return fail_sys("Finding the running program failed", error.value());
  for (const char* beside : {"../images", "../../images"}) {
    const auto folder = (program.parent_path() / beside).lexically_normal();
    if (std::filesystem::is_directory(folder, error)) return folder.string();
  }
  return fail(ErrorCode::kNotFound,
              "The folder of image recipes was not found beside " + program.parent_path().string(),
              "Set DRUPE_RECIPES to the folder \"images\" of the source tree.");
}

std::vector<std::string> list_recipes(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (!name.ends_with(kSuffix)) continue;
    name.resize(name.size() - kSuffix.size());
    const auto dash = name.rfind('-');
    if (dash != std::string::npos) names.push_back(name.replace(dash, 1, ":"));
  }
  std::ranges::sort(names);
  return names;
}

Result<Recipe> load_recipe(const std::string& folder, std::string_view name) {
  const std::string file = file_name(name);
  const std::string path = folder + "/" + file;
  if (file.empty() || ::access(path.c_str(), F_OK) != 0) {
    std::string known;
    for (const std::string& one : list_recipes(folder)) known += (known.empty() ? "" : ", ") + one;
    return fail(ErrorCode::kNotFound, "There is no recipe for the image \"" + std::string(name) + "\"",
                known.empty() ? "The folder " + folder + " has no recipes." : "There are: " + known + ".");
  }
  DRUPE_ASSIGN(const std::string text, read_file(AT_FDCWD, path, kMaxRecipe));
  auto recipe = parse_recipe(text);
  if (!recipe) return std::unexpected(std::move(recipe).error().in("Reading " + path + " failed"));
  if (!recipe->pip_lock.empty()) {
    DRUPE_ASSIGN(recipe->pip_lock, read_file(AT_FDCWD, folder + "/" + recipe->pip_lock, kMaxLock));
  }
  return recipe;
}

}  // namespace drupe
