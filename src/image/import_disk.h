// Images made of a whole disk instead of layers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "image/store.h"

namespace drupe {

/// Makes an image of a disk that a guest has written, in the store at the path `store` (ImageStore::open()):
/// `write` fills the empty file `fd` (borrowed; opened O_RDWR) with an ext4 file system of whole MiB that
/// nobody has mounted. Its content has no digest, so each call makes another image.
Result<Image> import_disk(const std::string& store, const std::function<Status(int fd)>& write,
                          const ImageConfig& config, const std::vector<std::string>& names);

}  // namespace drupe
