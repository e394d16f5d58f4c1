#include "api/service/ids.h"

#include <algorithm>
#include <ctime>

#include "base/ids.h"

namespace drupe::api {
namespace {

constexpr std::string_view kCrockford = "0123456789abcdefghjkmnpqrstvwxyz";
constexpr std::string_view kBase64Url = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::size_t kUlid = 26;

}  // namespace

std::string make_id(std::string_view prefix) {
  std::string id(prefix);
  const auto ms = static_cast<std::uint64_t>(now_ns() / 1'000'000);
  for (int shift = 45; shift >= 0; shift -= 5) id += kCrockford[(ms >> shift) & 31];
  for (const char byte : random_bytes(16)) id += kCrockford[static_cast<unsigned char>(byte) & 31];
  return id;
}

bool is_sandbox_id(std::string_view text) {
  if (!text.starts_with("sb-")) return false;
  text.remove_prefix(3);
  return text.size() == kUlid &&
         std::ranges::all_of(text, [](char c) { return kCrockford.find(c) != std::string_view::npos; });
}

std::string make_secret(std::string_view prefix) {
  std::string secret(prefix);
  // A byte for each six bits: simple, and no character is likelier than another.
  for (const char byte : random_bytes(43)) secret += kBase64Url[static_cast<unsigned char>(byte) & 63];
  return secret;
}

std::string secret_hint(std::string_view secret) {
  if (secret.size() < 24) return "...";
  return std::string(secret.substr(0, 8)) + "..." + std::string(secret.substr(secret.size() - 4));
}

Status check_name_word(const std::string& name) {
  constexpr std::size_t kMostNameBytes = 63;
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  const bool good = !name.empty() && name.size() <= kMostNameBytes && plain(name.front()) &&
                    std::ranges::all_of(name, [&](char c) { return plain(c) || c == '-'; });
  if (good) return {};
  return fail(ErrorCode::kInvalidArgument,
              "name must be 1 to 63 lower-case letters, digits and '-', and begin with a letter or digit");
}

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace drupe::api
