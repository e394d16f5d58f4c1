// A stream of bytes that is pulled: files, decompressors, network spools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace drupe {

/// One reader, one thread at a time.
class ByteSource {
 public:
  ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  virtual ~ByteSource() = default;
  /// Fills at least one byte of `into` (which is not empty) and returns how many; 0 only at the end.
  virtual Result<std::size_t> read(std::span<std::uint8_t> into) = 0;
};

/// Bytes in memory, which must outlive the source.
class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string_view bytes) : rest_(bytes) {}
  Result<std::size_t> read(std::span<std::uint8_t> into) override;

 private:
  std::string_view rest_;
};

/// A descriptor read from its current position to its end. Borrows the descriptor.
class FdSource : public ByteSource {
 public:
  explicit FdSource(int fd) : fd_(fd) {}
  Result<std::size_t> read(std::span<std::uint8_t> into) override;

 private:
  int fd_;
};

/// A range of a regular file, read with pread(): several may share one descriptor, which is borrowed.
class FileRangeSource : public ByteSource {
 public:
  FileRangeSource(int fd, std::uint64_t offset, std::uint64_t size) : fd_(fd), offset_(offset), left_(size) {}
  /// A file that ends before the range does is kIntegrity.
  Result<std::size_t> read(std::span<std::uint8_t> into) override;

 private:
  int fd_;
  std::uint64_t offset_;
  std::uint64_t left_;
};

}  // namespace drupe
