// SHA-256 digests as OCI writes them: "sha256:" and 64 lower-case hexadecimal digits.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "image/source.h"

namespace drupe {

/// Incremental SHA-256 (FIPS 180-4). After hex() it must not be updated any more.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(std::span<const std::uint8_t> bytes);
  void update(std::string_view bytes);
  /// Finishes; 64 lower-case hexadecimal digits.
  [[nodiscard]] std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

[[nodiscard]] std::string sha256_hex(std::string_view bytes);

/// True for exactly 64 lower-case hexadecimal digits.
[[nodiscard]] bool is_sha256_hex(std::string_view text);

/// The hexadecimal part of "sha256:<hex>". Any other form or algorithm is refused, so the result is safe in a
/// path.
Result<std::string> parse_digest(std::string_view text);

/// Passes bytes through and hashes them; with a limit on their number.
class HashingSource : public ByteSource {
 public:
  /// `inner` is borrowed. More than `limit` bytes is kLimit.
  HashingSource(ByteSource& inner, std::uint64_t limit) : inner_(inner), limit_(limit) {}
  Result<std::size_t> read(std::span<std::uint8_t> into) override;
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Finishes the hash.
  [[nodiscard]] std::string hex() { return hash_.hex(); }

 private:
  ByteSource& inner_;
  std::uint64_t limit_;
  std::uint64_t bytes_ = 0;
  Sha256 hash_;
};

/// Reads `source` to its end.
Status drain(ByteSource& source);

}  // namespace drupe
