// A sandbox's disk as an image.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "image/config.h"
#include "image/store.h"

namespace drupe {

/// Makes an image, with these names, of the disk of a sandbox that has ended well (Engine::stop()).
/// kInvalidState for one that runs, is paused or was lost: its disk may be in the middle of something.
Result<Image> commit_sandbox(Engine& engine, const std::string& id, const ImageConfig& config,
                             const std::vector<std::string>& names);

}  // namespace drupe
