// Identifiers and times of the API.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace drupe::api {

/// `prefix` and a ULID in lower case: 26 characters, of which the first ten are the time in milliseconds.
[[nodiscard]] std::string make_id(std::string_view prefix);
/// "sb-" and 26 characters of that alphabet.
[[nodiscard]] bool is_sandbox_id(std::string_view text);

/// Of a sandbox or a network: 1 to 63 lower-case letters, digits and '-', a letter or digit first.
Status check_name_word(const std::string& name);

/// `prefix` and 256 random bits in base64url: a secret.
[[nodiscard]] std::string make_secret(std::string_view prefix);
/// How the secret of a user's key, and of a delegated token, begins.
inline constexpr std::string_view kKeyPrefix = "skp_", kTokenPrefix = "skp_sb_";
/// What of a secret may be shown: its first 8 and last 4 characters.
[[nodiscard]] std::string secret_hint(std::string_view secret);

/// CLOCK_REALTIME in nanoseconds.
[[nodiscard]] std::int64_t now_ns();

}  // namespace drupe::api
