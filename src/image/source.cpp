#include "image/source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <unistd.h>

namespace drupe {

Result<std::size_t> MemorySource::read(std::span<std::uint8_t> into) {
  const std::size_t size = std::min(into.size(), rest_.size());
  if (size != 0) std::memcpy(into.data(), rest_.data(), size);
  rest_.remove_prefix(size);
  return size;
}

Result<std::size_t> FdSource::read(std::span<std::uint8_t> into) {
  while (true) {
    const ssize_t got = ::read(fd_, into.data(), into.size());
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) return fail_sys("Reading the archive failed", errno);
  }
}

Result<std::size_t> FileRangeSource::read(std::span<std::uint8_t> into) {
  if (left_ == 0) return std::size_t{0};
  const std::size_t want = static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), left_));
  while (true) {
    const ssize_t got = ::pread(fd_, into.data(), want, static_cast<off_t>(offset_));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_sys("Reading the archive failed", errno);
    if (got == 0) return fail(ErrorCode::kIntegrity, "The file ends before its recorded size");
    offset_ += static_cast<std::uint64_t>(got);
    left_ -= static_cast<std::uint64_t>(got);
    return static_cast<std::size_t>(got);
  }
}

}  // namespace drupe
