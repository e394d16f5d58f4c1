// Images made from Debian's packages by recipes that are kept in the tree (images/NAME-TAG.recipe).
// mmdebstrap installs the packages in a temporary folder of its own and streams the result; what is added to
// it (npm) or taken away from it is a second layer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "image/config.h"
#include "image/disk.h"
#include "image/progress.h"

namespace drupe {

struct DebianOptions {
  OnProgress on_progress{};
  CancelFlag cancel = nullptr;
};

/// What write_disk() needs for an image that is being built.
struct DebianBuild {
  ImageConfig config;
  std::vector<LayerInput>
      layers;  ///< To be opened in order; the first one's open() starts the build, minutes long.
};

/// Reads the recipe of the image `name` ("devbox:1"), finds the mirror and the way to build on this host, and
/// fetches what is not a package. kNotFound names the recipes that there are; kPermission tells how to allow
/// unprivileged builds. `options.on_progress` is called from the thread that reads the first layer, until its
/// first bytes come.
Result<DebianBuild> prepare_debian(std::string_view name, const DebianOptions& options);

/// Names of all recipes ("debian:12"), sorted; empty when their folder is not found.
[[nodiscard]] std::vector<std::string> debian_recipes();

}  // namespace drupe
