// gzip (RFC 1952, several members) and zstd (RFC 8878, several frames) as pulled streams.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "image/source.h"

namespace drupe {

enum class Compression : std::uint8_t { kNone, kGzip, kZstd };

/// By the first bytes of the data, of which four decide.
[[nodiscard]] Compression guess_compression(std::span<const std::uint8_t> head);

/// Bounds on what a compressed stream may become.
struct DecompressLimits {
  std::uint64_t total = std::uint64_t{20} << 30;  ///< Bytes of output, at most.
  /// Output may be at most this many times the input, beyond `ratio_floor` bytes of output.
  std::uint64_t ratio = 200;
  std::uint64_t ratio_floor = std::uint64_t{256} << 20;
};

/// Looks at the first bytes of `inner`, which is borrowed, and returns a source of the plain bytes; bytes
/// that start like neither format pass unchanged (still within limits.total). Trailing garbage, a cut stream
/// and a wrong check sum are kIntegrity, a broken limit is kLimit.
Result<std::unique_ptr<ByteSource>> decompress(ByteSource& inner, const DecompressLimits& limits);

}  // namespace drupe
