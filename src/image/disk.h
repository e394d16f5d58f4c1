// Writes image layers into one bootable ext4 disk image. Nothing of a layer is ever created on the host's
// file system: names, links and devices exist only in memory and then inside the disk.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "image/progress.h"
#include "image/source.h"

namespace drupe {

/// Changes whenever the same layers would give another disk, so that a stored disk can be told from a current
/// one.
inline constexpr int kDiskWriterVersion = 1;

struct LayerInput {
  std::string label;                ///< For progress and errors: "layer 2 of 5".
  std::uint64_t expected_size = 0;  ///< Of the plain tar, for progress; 0 when it is not known.
  /// Opens the plain (decompressed) tar. Called once, from the calling thread; the source is read by one
  /// other thread to its very end, so a source that checks a digest reports a mismatch from its last read().
  std::function<Result<std::unique_ptr<ByteSource>>()> open;
};

/// Bounds on what hostile layers may ask for. All layers together where not said otherwise.
struct DiskLimits {
  std::uint64_t entries = 1'000'000;
  std::uint64_t total_bytes = std::uint64_t{20}
                              << 30;  ///< Of file data read, also of files that later layers delete.
  std::size_t path = 4096;            ///< Bytes of an entry's name or a link's target.
  std::size_t name = 255;             ///< Bytes of one component: what ext4 can hold.
  std::size_t depth = 256;            ///< Components of an entry's name.
  std::size_t xattr_bytes = 3072;     ///< Of one file, names included: what fits one ext4 block.
};

struct DiskOptions {
  std::uint64_t virtual_bytes = std::uint64_t{8}
                                << 30;  ///< A multiple of 1 MiB, 64 MiB..8 TiB; the file is sparse.
  std::array<std::uint8_t, 16> uuid{};  ///< Of the file system; the same uuid and layers give the same bytes.
  DiskLimits limits;
  OnProgress progress;
  CancelFlag cancel = nullptr;
};

struct DiskSummary {
  std::uint64_t allocated_bytes = 0;  ///< That the sparse file takes on the host.
  std::uint64_t virtual_bytes = 0;
  std::uint64_t entries = 0;  ///< Files, directories and links in the disk.
};

/// Applies `layers`, lowest first, and writes the result into `fd`, an empty regular file opened O_RDWR
/// (borrowed). Not synced: the caller publishes the file. After an error its content is worthless. Hostile
/// layers give kIntegrity or kLimit, a full host disk kLimit, `cancel` kCancelled.
Result<DiskSummary> write_disk(int fd, const std::vector<LayerInput>& layers, const DiskOptions& options);

}  // namespace drupe
