// Recipes of Debian images: a keyword and its values on each line, "#" begins a comment.
//
//   suite bookworm                the Debian release; once
//   packages bash python3 ...     installed without what they only recommend; any number of lines
//   npm VERSION INTEGRITY         npm's own package from the npm registry, checked against "sha512-..."
//   pip LOCK 3.11               what the file LOCK beside the recipe names, for that Python: versions and
//   hashes remove PATH                   taken away after the build env NAME=value                of the
//   image's config, like the next two workdir PATH cmd WORD ...
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace drupe {

struct Recipe {
  std::string suite;
  std::vector<std::string> packages;
  std::string npm_version, npm_integrity;  ///< Both empty: without npm.
  std::string pip_lock;              ///< Name of a file; after load_recipe() its content. Empty: without.
  std::string pip_python;            ///< "3.11"
  std::vector<std::string> removed;  ///< Without a leading '/'.
  std::vector<std::string> env, cmd;
  std::string working_dir;
};

/// kInvalidArgument, with the line's number, for what is not a recipe.
Result<Recipe> parse_recipe(std::string_view text);

/// $DRUPE_RECIPES, else "../images" or "../../images" beside the folder of the running program, whichever is
/// there: installed or built, and the source tree. kNotFound when none is.
Result<std::string> recipe_folder();
/// Reads the recipe of the image `name` from `folder`: "devbox:1" is devbox-1.recipe.
Result<Recipe> load_recipe(const std::string& folder, std::string_view name);
/// Names of the images that `folder` has recipes for, sorted.
[[nodiscard]] std::vector<std::string> list_recipes(const std::string& folder);

}  // namespace drupe
