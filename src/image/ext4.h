// An ext4 file system in a file: made empty, filled with blocks while layers stream in, and given its inodes
// and directories at the end, when the tree is final. Through libext2fs.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "image/disk_space.h"
#include "image/tree.h"

namespace drupe {

struct Ext4Options {
  std::uint64_t bytes = 0;  ///< Size of the disk.
  std::array<std::uint8_t, 16> uuid{};
};

/// One thread. The same options and calls give the same bytes: no clock and no randomness goes in.
class Ext4 : public BlockMap {
 public:
  /// Makes the file system in `fd`, an empty file (borrowed): 16 MiB journal, no reserved blocks, inode
  /// tables that stay holes and are marked as zeroed, room to grow to about 1 TiB while mounted.
  static Result<std::unique_ptr<Ext4>> create(int fd, const Ext4Options& options);
  ~Ext4() override;

  BlockRange find_free(std::uint64_t from, std::uint64_t most) override;
  void mark(std::uint64_t physical, std::uint64_t count, bool used) override;

  /// Writes inodes, directories and attributes of `tree`, whose files' data is in place, and closes the file
  /// system. Directory blocks come from `space`. To be called once.
  Status finish(ImageTree& tree, DiskSpace& space);

 private:
  struct State;
  explicit Ext4(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace drupe
