#include "image/digest.h"

#include <algorithm>
#include <array>
#include <vector>

// OpenSSL's low-level calls: linked statically they are 20 KB, where EVP costs each start of the program 3
// ms.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "base/ids.h"

namespace drupe {

struct Sha256::State {
  SHA256_CTX context{};
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  SHA256_Init(&state_->context);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::uint8_t> bytes) {
  SHA256_Update(&state_->context, bytes.data(), bytes.size());
}

void Sha256::update(std::string_view bytes) {
  SHA256_Update(&state_->context, bytes.data(), bytes.size());
}

std::string Sha256::hex() {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> raw{};
  SHA256_Final(raw.data(), &state_->context);
  return to_hex(std::string(reinterpret_cast<const char*>(raw.data()), raw.size()));
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

bool is_sha256_hex(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Result<std::string> parse_digest(std::string_view text) {
  constexpr std::string_view kPrefix = "sha256:";
  if (text.starts_with(kPrefix) && is_sha256_hex(text.substr(kPrefix.size())))
    return std::string(text.substr(kPrefix.size()));
  return fail(ErrorCode::kIntegrity, "The digest '" + std::string(text.substr(0, 100)) +
                                         "' is not 'sha256:' with 64 lower-case hexadecimal digits");
}

Result<std::size_t> HashingSource::read(std::span<std::uint8_t> into) {
  DRUPE_ASSIGN(const std::size_t got, inner_.read(into));
  bytes_ += got;
  if (bytes_ > limit_)
    return fail(ErrorCode::kLimit,
                "The data is larger than the limit of " + std::to_string(limit_) + " bytes");
  hash_.update(into.first(got));
  return got;
}

Status drain(ByteSource& source) {
  std::vector<std::uint8_t> scratch(65536);
  while (true) {
    DRUPE_ASSIGN(const std::size_t got, source.read(scratch));
    if (got == 0) return {};
  }
}

}  // namespace drupe
