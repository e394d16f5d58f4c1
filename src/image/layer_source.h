// A stored layer as the plain tar it stands for, verified while it is read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "image/decompress.h"
#include "image/source.h"

namespace drupe {

/// Where a layer lies, and what is known about it.
struct LayerFile {
  int fd = -1;  ///< Of a regular file; borrowed.
  std::uint64_t offset = 0, size = 0;
  std::string digest;  ///< SHA-256 of these bytes to be checked; empty: none, or checked before.
  std::optional<Compression>
      promised;  ///< By its media type; other content is refused. Nothing: whatever it is.
};

/// Reads the plain tar; the last read() is kIntegrity unless the digests of `layer` and `diff_id` (64
/// hexadecimal digits of the plain bytes) came out right.
Result<std::unique_ptr<ByteSource>> open_layer(const LayerFile& layer, const std::string& diff_id);

}  // namespace drupe
