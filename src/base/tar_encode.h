// Encodes entries of a tar stream: POSIX ustar (IEEE Std 1003.1-2017, pax) with extended headers where a
// field does not fit, and GNU's sparse format 1.0 for files with holes. Bytes only: who walks the files and
// who reads them is the caller's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace drupe {

inline constexpr std::size_t kTarBlock = 512;

/// A range of a sparse file that holds data.
struct TarExtent {
  std::uint64_t offset = 0, length = 0;
};

struct TarEntry {
  std::string name{};  ///< Bytes without NUL; a folder's name ends with '/' or gets one.
  char type = 'f';     ///< f d l c b p as in find -type; h: hard link to the earlier entry `link`.
  std::uint32_t mode = 0, uid = 0, gid = 0;
  std::uint64_t size = 0;  ///< Of a regular file, holes included.
  std::int64_t mtime_ns = 0;
  std::string link{};  ///< Of l and h.
  std::uint32_t device_major = 0, device_minor = 0;
  /// With `sparse`: ascending, not overlapping ranges within size; only their bytes follow the header.
  bool sparse = false;
  std::vector<TarExtent> extents{};
  /// Extended attributes, values are bytes (pax records SCHILY.xattr.*).
  std::map<std::string, std::string> xattrs{};
};

/// The header blocks of one entry: for a regular file its data (tar_data_size() bytes) and tar_padding()
/// zeros follow.
[[nodiscard]] std::string encode_tar_entry(const TarEntry& entry);
/// Bytes of file data behind the header of `entry`; 0 for everything but regular files.
[[nodiscard]] std::uint64_t tar_data_size(const TarEntry& entry);
/// Zeros that fill the last block of `size` bytes.
[[nodiscard]] constexpr std::size_t tar_padding(std::uint64_t size) {
  return static_cast<std::size_t>((kTarBlock - size % kTarBlock) % kTarBlock);
}
/// The two zero blocks at the end.
[[nodiscard]] std::string tar_end();

}  // namespace drupe
