// Base snapshots of an image that is gone.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/home.h"

namespace drupe {

/// Removes the base snapshots of the image with this id; sandboxes hold links of their own. One that is being
/// made at this moment stays, until it is pruned.
Status remove_bases_of(const Home& home, const std::string& image_id);

}  // namespace drupe
