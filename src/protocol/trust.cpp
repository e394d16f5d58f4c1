#include "protocol/trust.h"

#include <algorithm>
#include <string_view>

#include "protocol/codec.h"

namespace drupe {
namespace {

constexpr std::size_t kIdDigits = 16;
constexpr std::size_t kHashDigits = 8;

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

std::string TrustBundle::encode() const {
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(authorities.size()));
  for (const auto& one : authorities) writer.text(one.id).text(one.subject_hash).text(one.pem);
  return writer.take();
}

Result<TrustBundle> TrustBundle::decode(ByteView bytes) {
  ByteReader reader(bytes);
  TrustBundle bundle;
  const auto count = reader.number<std::uint32_t>();
  if (bytes.size() > kMaxTrustBundle || count > kMaxAuthorities) return codec::malformed("trust");
  for (std::uint32_t i = 0; reader.ok() && i < count; ++i) {
    TrustedAuthority one;
    one.id = reader.text();
    one.subject_hash = reader.text();
    one.pem = reader.text();
    if (!is_hex(one.id, kIdDigits) || !is_hex(one.subject_hash, kHashDigits) ||
        !one.pem.starts_with("-----BEGIN CERTIFICATE-----\n") ||
        !one.pem.ends_with("\n-----END CERTIFICATE-----\n"))
      return codec::malformed("trust");
    bundle.authorities.push_back(std::move(one));
  }
  if (!reader.done()) return codec::malformed("trust");
  return bundle;
}

}  // namespace drupe
