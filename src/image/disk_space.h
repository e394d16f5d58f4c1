// Where the data of files goes while layers stream in: hands out free blocks in order and writes data in
// large pieces.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"

namespace drupe {

inline constexpr std::uint64_t kDiskBlock = 4096;

/// `count` blocks of a file from block `logical` on lie at block `physical` of the disk.
struct BlockRange {
  std::uint64_t logical = 0;
  std::uint64_t physical = 0;
  std::uint64_t count = 0;
};

/// The disk's block map, as its file system keeps it.
class BlockMap {
 public:
  BlockMap() = default;
  BlockMap(const BlockMap&) = delete;
  BlockMap& operator=(const BlockMap&) = delete;
  virtual ~BlockMap() = default;
  /// The first run of free blocks at or after `from`, at most `most` long; count 0 when there is none.
  virtual BlockRange find_free(std::uint64_t from, std::uint64_t most) = 0;
  virtual void mark(std::uint64_t physical, std::uint64_t count, bool used) = 0;
};

/// One thread. Everything is written when flush() has succeeded.
class DiskSpace {
 public:
  /// Borrows both.
  DiskSpace(int fd, BlockMap& map);

  /// Adds `count` blocks from `logical` on to `blocks`. kLimit when the disk is full; what was added before
  /// stays in `blocks`, to be given back with them.
  Status allocate(std::uint64_t logical, std::uint64_t count, std::vector<BlockRange>& blocks);
  /// Gives blocks back; the host's file loses what was written to them.
  void release(const std::vector<BlockRange>& blocks);
  /// Writes at a byte position of the disk; bytes of a block that are never written read as zero.
  Status write(std::uint64_t at, std::span<const std::uint8_t> bytes);
  Status flush();

 private:
  Status write_out();

  int fd_;
  BlockMap& map_;
  std::uint64_t next_ = 0;  ///< Blocks are searched from here, so files lie in the order of the layers.
  std::vector<std::uint8_t> buffer_;
  std::uint64_t buffer_at_ = 0;
  std::size_t fill_ = 0;
};

}  // namespace drupe
