// Decodes a hostile tar stream: ustar, pax and GNU forms, long names, base-256 numbers, sparse files (old
// GNU, pax 0.0, 0.1, 1.0). Bytes in, entries out; what names mean and whether they are harmless is the
// caller's to decide.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/tar_encode.h"

namespace drupe {

struct TarDecodeLimits {
  std::size_t metadata = std::size_t{1}
                         << 20;   ///< Bytes of the extended headers of one entry, or a long name.
  std::size_t extents = 1 << 20;  ///< Of one sparse file.
};

/// Pushes bytes through; memory is bounded by the limits. After an error it must not be fed again.
class TarDecoder {
 public:
  struct Events {
    /// An entry begins. Its name has no trailing '/', its type is one of TarEntry's; extents are sorted and
    /// within size.
    std::function<Status(const TarEntry& entry)> on_entry;
    /// Data of the current regular file at `offset` of it; holes are not reported.
    std::function<Status(std::uint64_t offset, ByteView bytes)> on_data;
    /// The current entry is complete. May be empty.
    std::function<Status()> on_entry_end;
  };

  explicit TarDecoder(Events events, TarDecodeLimits limits = {})
      : events_(std::move(events)), limits_(limits) {}
  Status feed(ByteView bytes);
  /// No more bytes will come: kIntegrity when the stream was cut inside an entry.
  Status finish();
  /// The end of the archive was seen; bytes after it are ignored.
  [[nodiscard]] bool ended() const { return state_ == State::kEnd; }

 private:
  enum class State : std::uint8_t { kHeader, kMetadata, kOldSparse, kSparseMap, kData, kPadding, kEnd };
  using Records = std::map<std::string, std::string, std::less<>>;

  Status take_block(ByteView block);
  Status take_header(std::string_view block);
  Status begin_metadata(char kind, std::uint64_t size);
  Status end_metadata();
  Status read_pax(Records& into);
  Status apply_records();
  Status take_old_sparse(std::string_view block);
  Status take_sparse_map(std::string_view block);
  Status add_extent(std::uint64_t offset, std::uint64_t length);
  Status begin_entry();
  Status take_data(ByteView& bytes);
  Status end_entry();

  Events events_;
  TarDecodeLimits limits_;
  State state_ = State::kHeader;
  std::string block_;  ///< An incomplete block.
  bool zero_block_seen_ = false;

  char metadata_kind_ = 0;
  std::string metadata_;
  std::uint64_t metadata_left_ = 0;  ///< With padding.
  std::uint64_t metadata_size_ = 0;
  Records global_, local_;
  std::size_t local_size_ = 0;  ///< Bytes of the headers that made local_.
  std::optional<std::string> long_name_, long_link_;

  TarEntry entry_;
  std::uint64_t stored_left_ = 0;  ///< Bytes of the entry's data still in the stream.
  std::size_t padding_left_ = 0;
  std::size_t extent_ = 0;  ///< The one that data goes to now.
  std::uint64_t extent_used_ = 0;
  std::string sparse_digits_;  ///< Of the pax 1.0 map: an unfinished number.
  std::optional<std::uint64_t> sparse_count_, sparse_offset_;
};

}  // namespace drupe
