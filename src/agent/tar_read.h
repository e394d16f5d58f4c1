// Reads tar streams: POSIX ustar and pax, GNU's long names, base-256 numbers and all its sparse formats.
// Input is hostile.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/tar_encode.h"

namespace drupe::agent {

/// Bounds: names and link targets 4096 bytes, extended headers 1 MiB, sparse maps 65,536 extents.
class TarReader {
 public:
  /// Fills the buffer with up to `size` bytes; 0 at the end. Called until nothing more is needed.
  using Source = std::function<Result<std::size_t>(char* buffer, std::size_t size)>;
  explicit TarReader(Source source) : source_(std::move(source)) {}

  /// The next entry, what is left of the data before it passed over; nothing at the end of the archive.
  /// `size` and `extents` are those of the real file; a file without holes has one extent (none when it is
  /// empty) and sparse = false.
  Result<std::optional<TarEntry>> next();
  /// The next bytes of the entry's stored data, 0 at its end. They belong to the extents in their order.
  Result<std::size_t> read(char* buffer, std::size_t size);

 private:
  using Block = std::array<char, kTarBlock>;
  struct Extended;
  Status fill(char* buffer, std::size_t size, bool may_end);
  Result<bool> read_header(Block& block);
  Result<std::string> read_text(std::uint64_t size, std::size_t limit);
  Status skip_rest();
  Status read_extended(std::uint64_t size, Extended& extended);
  Result<TarEntry> build(const Block& block, Extended& extended);
  Status old_sparse(const Block& block, TarEntry& entry);
  Status sparse_map_in_data(TarEntry& entry);
  Result<std::uint64_t> map_number(std::string& rest);

  Source source_;
  bool ended_ = false;
  std::uint64_t left_ = 0;   ///< Stored data of the entry that was not read yet.
  std::size_t padding_ = 0;  ///< Behind it.
};

}  // namespace drupe::agent
