// Certificate authorities that a guest is to trust: the data of an OpenKind::kTrust stream.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace drupe {

struct TrustedAuthority {
  std::string id;            ///< 16 lower-case hex digits, different for each certificate.
  std::string subject_hash;  ///< 8 lower-case hex digits: OpenSSL's name of a link to it (openssl-rehash(1)).
  std::string pem;           ///< One CERTIFICATE block, with its line end.
  bool operator==(const TrustedAuthority&) const = default;
};

/// Longest encoded TrustBundle, and most authorities in it. Distributions' stores have 150 in 250 KiB.
inline constexpr std::size_t kMaxTrustBundle = std::size_t{4} << 20;
inline constexpr std::size_t kMaxAuthorities = 2048;

struct TrustBundle {
  std::vector<TrustedAuthority> authorities;
  [[nodiscard]] std::string encode() const;
  /// Ids and hashes become file names: anything else than hex digits is refused, as is a block that is none.
  static Result<TrustBundle> decode(ByteView bytes);
};

}  // namespace drupe
