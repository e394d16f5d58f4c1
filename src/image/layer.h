// Applies one layer to the tree: what its entries mean (OCI image specification, "Image Layer Filesystem
// Changeset") and what is refused.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/tar_encode.h"
#include "image/disk.h"
#include "image/disk_space.h"
#include "image/tree.h"

namespace drupe {

/// Of all layers so far.
struct LayerTotals {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
};

/// Takes the events of a TarDecoder. One thread; everything is borrowed. After an error it must not be used
/// again.
///
/// Names: a leading '/' is dropped, ".." is refused. A file replaces whatever has its name and never writes
/// through a link; links among its parents are followed inside the image. Hard links find their target in the
/// tree only. Whiteouts go by name, whatever type of entry carries them, and act on lower layers whatever
/// their place in the layer. Set-id bits, owners, devices and fifos are kept: they act inside the guest
/// alone.
class LayerApplier {
 public:
  /// `layer` counts from 1 and grows.
  LayerApplier(ImageTree& tree, DiskSpace& space, const DiskLimits& limits, LayerTotals& totals, int layer)
      : tree_(tree), space_(space), limits_(limits), totals_(totals), layer_(layer) {}

  Status entry(const TarEntry& entry);
  Status data(std::uint64_t offset, ByteView bytes);

 private:
  Status apply(const TarEntry& entry);
  Status check(const TarEntry& entry);
  Status white_out(const ImagePath& path, std::string_view hidden);
  Status add_link(const TarEntry& entry, const ImagePath& path);
  Status add_file(const TarEntry& entry, Inode& inode);
  Status take_metadata(const TarEntry& entry, Inode& inode);

  ImageTree& tree_;
  DiskSpace& space_;
  const DiskLimits& limits_;
  LayerTotals& totals_;
  int layer_;
  Inode* file_ = nullptr;  ///< The one whose data comes now.
  std::size_t range_ = 0;  ///< Of its blocks, where the last data went.
};

}  // namespace drupe
