// Base64 with padding (RFC 4648, 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace drupe::api {

[[nodiscard]] std::string base64_encode(std::string_view bytes);
/// Nothing when it is malformed.
[[nodiscard]] std::optional<std::string> base64_decode(std::string_view text);

}  // namespace drupe::api
