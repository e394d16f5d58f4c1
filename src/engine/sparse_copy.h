// Copies of files with holes.
#pragma once

#include <sys/types.h>

#include "base/result.h"

namespace drupe {

/// Copies the first `size` bytes of `in` to the empty file `out`, which has that size then: only what
/// SEEK_DATA finds, so that holes stay holes.
Status copy_data(int in, int out, off_t size);

}  // namespace drupe
