#include "image/disk_space.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>

#include "base/bytes.h"
#include "base/files.h"

namespace drupe {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 20;
// Between one small file and the next lies less than a block; bridging it saves a system call for each.
constexpr std::uint64_t kBridge = kDiskBlock;

}  // namespace

DiskSpace::DiskSpace(int fd, BlockMap& map) : fd_(fd), map_(map) {}

Status DiskSpace::allocate(std::uint64_t logical, std::uint64_t count, std::vector<BlockRange>& blocks) {
  bool wrapped = false;
  while (count > 0) {
    BlockRange found = map_.find_free(next_, count);
    if (found.count == 0) {
      if (wrapped || next_ == 0)
        return fail(ErrorCode::kLimit, "The files of the image do not fit on its disk",
                    "Use a smaller image; the size of an image's disk is fixed.");
      wrapped = true;
      next_ = 0;
      continue;
    }
    map_.mark(found.physical, found.count, true);
    next_ = found.physical + found.count;
    found.logical = logical;
    if (!blocks.empty() && blocks.back().logical + blocks.back().count == logical &&
        blocks.back().physical + blocks.back().count == found.physical) {
      blocks.back().count += found.count;
    } else {
      blocks.push_back(found);
    }
    logical += found.count;
    count -= found.count;
  }
  return {};
}

void DiskSpace::release(const std::vector<BlockRange>& blocks) {
  for (const BlockRange& range : blocks) {
    map_.mark(range.physical, range.count, false);
    const std::uint64_t from = range.physical * kDiskBlock;
    const std::uint64_t size = range.count * kDiskBlock;
    // What is still buffered must not be written over the hole later. An error here cannot be: it is memory
    // only.
    if (fill_ > 0 && from < buffer_at_ + fill_ && buffer_at_ < from + size) {
      const std::uint64_t begin = std::max(from, buffer_at_) - buffer_at_;
      const std::uint64_t end = std::min(from + size, buffer_at_ + fill_) - buffer_at_;
      std::memset(buffer_.data() + begin, 0, end - begin);
    }
    // New data may use only a part of a block, so the rest must be zero again. Where the host's file system
    // has no holes, zeros are written in their place.
    if (::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                    static_cast<off_t>(size)) != 0) {
      const std::string zeros(kDiskBlock, '\0');
      for (std::uint64_t i = 0; i < range.count; ++i) (void)pwrite_all(fd_, zeros, from + i * kDiskBlock);
    }
  }
}

Status DiskSpace::write(std::uint64_t at, std::span<const std::uint8_t> bytes) {
  buffer_.resize(kBuffer);
  const std::uint64_t end = buffer_at_ + fill_;
  const bool follows = fill_ > 0 && at >= end && at - end < kBridge && at - buffer_at_ < buffer_.size();
  if (!follows) {
    DRUPE_TRY(write_out());
    buffer_at_ = at;
  } else {
    // The gap is the end of a block that belongs to this very run of files: it is zero.
    std::memset(buffer_.data() + fill_, 0, at - end);
    fill_ = at - buffer_at_;
  }
  while (!bytes.empty()) {
    if (fill_ == 0 && bytes.size() >= buffer_.size()) {
      DRUPE_TRY(pwrite_all(fd_, as_text(bytes), buffer_at_));
      buffer_at_ += bytes.size();
      return {};
    }
    const std::size_t count = std::min(bytes.size(), buffer_.size() - fill_);
    std::memcpy(buffer_.data() + fill_, bytes.data(), count);
    fill_ += count;
    bytes = bytes.subspan(count);
    if (fill_ == buffer_.size()) DRUPE_TRY(write_out());
  }
  return {};
}

Status DiskSpace::flush() {
  return write_out();
}

Status DiskSpace::write_out() {
  if (fill_ == 0) return {};
  const std::size_t count = std::exchange(fill_, 0);
  const std::uint64_t at = buffer_at_;
  buffer_at_ += count;
  return pwrite_all(fd_, as_text(std::span(buffer_).first(count)), at);
}

}  // namespace drupe
