// Python packages of a recipe: the host's pip fetches them as wheels (from where it is configured to), the
// image's own pip installs them offline while the image is built, natively.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "image/build_folder.h"
#include "image/progress.h"

namespace drupe {

/// A folder `wheels` in a temporary folder, which goes with this: wheels, and requirements.txt naming them.
struct PipWheels {
  std::shared_ptr<BuildFolder> folder;
  [[nodiscard]] std::string path() const { return folder->path() + "/wheels"; }
};

/// Fetches exactly what `lock` names (a requirements file in which every package has a version and hashes)
/// for Python `version` ("3.11") on Linux, as wheels only: nothing of a package runs on the host. kNotFound
/// when this host has no pip.
Result<PipWheels> fetch_wheels(std::string_view lock, const std::string& version, CancelFlag cancel);

/// The hooks of mmdebstrap that install them and leave nothing else behind.
[[nodiscard]] std::vector<std::string> pip_hooks(const PipWheels& wheels);
/// The same as the command line of pip, for the host.
[[nodiscard]] std::vector<std::string> pip_download(const std::string& python, const std::string& folder,
                                                    const std::string& version);

}  // namespace drupe
