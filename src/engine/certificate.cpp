#include "engine/certificate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <set>

// Low-level calls, as in image/digest.cpp: OpenSSL's own X.509 would cost each start of the program 3 ms.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "image/auth.h"
#include "image/digest.h"

namespace drupe {
namespace {

constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----";
constexpr std::string_view kEnd = "-----END CERTIFICATE-----";
constexpr std::size_t kLineChars = 64;  // RFC 7468, 2
constexpr std::size_t kIdDigits = 16;

// Tags of DER (X.690).
constexpr std::uint8_t kInteger = 0x02, kBitString = 0x03, kOid = 0x06, kUtf8 = 0x0c, kSequence = 0x30,
                       kSet = 0x31, kVersion = 0xa0;
constexpr std::uint8_t kPrintable = 0x13, kT61 = 0x14, kIa5 = 0x16, kVisible = 0x1a, kUniversal = 0x1c,
                       kBmp = 0x1e;

struct Element {
  std::uint8_t tag = 0;
  std::string_view value;  ///< Content.
  std::string_view whole;  ///< With tag and length.
};

/// Takes one element off the front of `rest`; nullopt when it does not fit or is not DER.
std::optional<Element> take(std::string_view& rest) {
  if (rest.size() < 2) return std::nullopt;
  std::size_t head = 2;
  std::size_t length = static_cast<std::uint8_t>(rest[1]);
  if (length >= 0x80) {
    const std::size_t bytes = length & 0x7f;
    if (bytes == 0 || bytes > 3 || rest.size() < head + bytes) return std::nullopt;
    length = 0;
    for (std::size_t i = 0; i < bytes; ++i) length = length << 8 | static_cast<std::uint8_t>(rest[head + i]);
    head += bytes;
  }
  if (rest.size() - head < length) return std::nullopt;
  const Element element{static_cast<std::uint8_t>(rest[0]), rest.substr(head, length),
                        rest.substr(0, head + length)};
  rest.remove_prefix(head + length);
  return element;
}

std::optional<std::string_view> take(std::string_view& rest, std::uint8_t tag) {
  const auto element = take(rest);
  if (!element || element->tag != tag) return std::nullopt;
  return element->value;
}

std::string element_of(std::uint8_t tag, std::string_view value) {
  std::string out(1, static_cast<char>(tag));
  if (value.size() < 0x80) {
    out.push_back(static_cast<char>(value.size()));
  } else {
    std::string length;
    for (std::size_t left = value.size(); left != 0; left >>= 8)
      length.insert(length.begin(), static_cast<char>(left & 0xff));
    out.push_back(static_cast<char>(0x80 | length.size()));
    out += length;
  }
  return out.append(value);
}

void append_utf8(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xc0 | code >> 6));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | code >> 12));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else {
    out.push_back(static_cast<char>(0xf0 | (code >> 18 & 0x07)));
    out.push_back(static_cast<char>(0x80 | (code >> 12 & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}

/// Bytes of each character of a string type that is compared in its canonical form; 0: of others.
std::size_t character_bytes(std::uint8_t tag) {
  switch (tag) {
    case kUtf8:
    case kPrintable:
    case kT61:
    case kIa5:
    case kVisible:
      return 1;
    case kBmp:
      return 2;
    case kUniversal:
      return 4;
    default:
      return 0;
  }
}

bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

/// asn1_string_canon() in OpenSSL's crypto/x509/x_name.c: UTF-8, ASCII letters small, blanks stripped at both
/// ends and joined within.
std::string canonical_text(const Element& element) {
  const std::size_t width = character_bytes(element.tag);
  std::string text;
  if (element.tag == kUtf8) {
    text = element.value;
  } else {
    for (std::size_t at = 0; at + width <= element.value.size(); at += width) {
      std::uint32_t code = 0;
      for (std::size_t i = 0; i < width; ++i)
        code = code << 8 | static_cast<std::uint8_t>(element.value[at + i]);
      append_utf8(text, code);
    }
  }
  std::string out;
  for (const char c : text) {
    if (is_blank(c)) {
      if (!out.empty() && out.back() != ' ') out.push_back(' ');
    } else {
      out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
    }
  }
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

/// The SETs of a name one after the other, without the sequence around them.
std::optional<std::string> canonical_name(std::string_view name) {
  std::string out;
  while (!name.empty()) {
    auto rest = take(name, kSet);
    if (!rest) return std::nullopt;
    std::vector<std::string> entries;
    while (!rest->empty()) {
      auto entry = take(*rest, kSequence);
      if (!entry) return std::nullopt;
      const auto type = take(*entry);
      const auto value = type ? take(*entry) : std::nullopt;
      if (!value || type->tag != kOid || !entry->empty()) return std::nullopt;
      const std::string canonical = character_bytes(value->tag) == 0
                                        ? std::string(value->whole)
                                        : element_of(kUtf8, canonical_text(*value));
      entries.push_back(element_of(kSequence, std::string(type->whole) + canonical));
    }
    std::ranges::sort(entries);  // X.690, 11.6
    std::string set;
    for (const auto& entry : entries) set += entry;
    out += element_of(kSet, set);
  }
  return out;
}

/// X509_NAME_hash(): the first four bytes of the canonical name's SHA-1 as a little-endian number.
std::string name_hash(const std::string& canonical) {
  SHA_CTX context{};
  std::array<unsigned char, SHA_DIGEST_LENGTH> digest{};
  SHA1_Init(&context);
  SHA1_Update(&context, canonical.data(), canonical.size());
  SHA1_Final(digest.data(), &context);
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%02x%02x%02x%02x", digest[3], digest[2], digest[1], digest[0]);
  return text.data();
}

/// The subject of a Certificate (RFC 5280, 4.1); nullopt when it is none.
std::optional<std::string_view> subject_of(std::string_view der) {
  auto certificate = take(der, kSequence);
  if (!certificate || !der.empty()) return std::nullopt;
  auto body = take(*certificate, kSequence);
  if (!body || !take(*certificate, kSequence) || !take(*certificate, kBitString) || !certificate->empty())
    return std::nullopt;
  if (static_cast<std::uint8_t>(body->empty() ? '\0' : body->front()) == kVersion) take(*body);
  if (!take(*body, kInteger)) return std::nullopt;   // serial number
  if (!take(*body, kSequence)) return std::nullopt;  // algorithm
  if (!take(*body, kSequence)) return std::nullopt;  // issuer
  if (!take(*body, kSequence)) return std::nullopt;  // validity
  const auto subject = take(*body, kSequence);
  if (!subject || !take(*body, kSequence)) return std::nullopt;  // key
  return subject;
}

std::string pem_of(std::string_view der) {
  const std::string text = base64_encode(der);
  std::string pem(kBegin);
  pem += '\n';
  for (std::size_t at = 0; at < text.size(); at += kLineChars) pem += text.substr(at, kLineChars) + "\n";
  return pem.append(kEnd).append("\n");
}

}  // namespace

Result<std::vector<TrustedAuthority>> read_certificates(std::string_view pem) {
  std::vector<TrustedAuthority> found;
  std::set<std::string> known;
  for (std::size_t at = pem.find(kBegin); at != std::string_view::npos; at = pem.find(kBegin, at)) {
    at += kBegin.size();
    const std::size_t end = pem.find(kEnd, at);
    std::string text(pem.substr(at, end == std::string_view::npos ? 0 : end - at));
    std::erase_if(text, is_blank);
    const auto der = base64_decode(text);
    const auto subject = der ? subject_of(*der) : std::nullopt;
    const auto name = subject ? canonical_name(*subject) : std::nullopt;
    if (!name)
      return fail(
          ErrorCode::kInvalidArgument,
          "Its CERTIFICATE block number " + std::to_string(found.size() + 1) + " holds no certificate");
    Sha256 digest;
    digest.update(*der);
    const std::string id = digest.hex().substr(0, kIdDigits);
    if (known.insert(id).second) found.push_back({id, name_hash(*name), pem_of(*der)});
    at = end;
  }
  return found;
}

}  // namespace drupe
