// What a registry asks for to let a client in, and what Docker's configuration file has for it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace drupe {

/// One challenge of a WWW-Authenticate header (RFC 9110, 11.6.1).
struct Challenge {
  std::string scheme;                         ///< Lower case: "bearer", "basic".
  std::map<std::string, std::string> params;  ///< Names in lower case; the first of each counts.
};
/// Reads a hostile header; what does not parse ends the list.
[[nodiscard]] std::vector<Challenge> parse_challenges(std::string_view header);

struct Credentials {
  std::string username, password;
  std::string identity_token;  ///< An OAuth2 refresh token instead of a password.
  std::string helper;          ///< The program that has them, which is not asked; all else is empty then.
};
/// From the text of Docker's config.json: `auths` for `host` ("registry.example.com:5000", "docker.io"), else
/// the name of the helper that would be asked.
Result<std::optional<Credentials>> credentials_from(std::string_view json, const std::string& host);
/// The same from $DOCKER_CONFIG/config.json, else ~/.docker/config.json. Nothing when there is no such file.
Result<std::optional<Credentials>> find_credentials(const std::string& host);

[[nodiscard]] std::string base64_encode(std::string_view bytes);
/// Nothing for text that is not base64.
[[nodiscard]] std::optional<std::string> base64_decode(std::string_view text);

}  // namespace drupe
