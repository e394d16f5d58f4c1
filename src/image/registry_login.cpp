// Logging in to a registry: basic, or a token from the service that the registry names (distribution's token
// authentication specification).
#include <nlohmann/json.hpp>

#include "image/registry.h"
#include "image/text.h"

namespace drupe {
namespace {

constexpr std::size_t kTokenLimit = std::size_t{64} << 10;

std::string basic(const Credentials& login) {
  return "Basic " + base64_encode(login.username + ":" + login.password);
}

std::string param(const Challenge& challenge, const std::string& name) {
  const auto found = challenge.params.find(name);
  return found == challenge.params.end() ? std::string() : found->second;
}

/// Header values must not be able to begin another header.
bool is_header_safe(std::string_view text) {
  for (const char c : text)
    if (c < ' ' || c > '~') return false;
  return true;
}

}  // namespace

Status Registry::log_in(const HttpResponse& refused) {
  const bool had_token = !authorization_.empty();
  authorization_.clear();
  for (const Challenge& challenge : parse_challenges(refused.header("www-authenticate"))) {
    if (challenge.scheme == "bearer") return fetch_token(challenge);
    if (challenge.scheme != "basic" || had_token) continue;
    DRUPE_ASSIGN(const auto login, find_credentials(reference_.host));
    if (login && login->helper.empty() && !login->username.empty()) authorization_ = basic(*login);
    return {};
  }
  return {};
}

Status Registry::fetch_token(const Challenge& challenge) {
  DRUPE_ASSIGN(const auto login, find_credentials(reference_.host));
  const std::string realm = param(challenge, "realm");
  DRUPE_ASSIGN(const Url url, parse_url(realm));
  if (url.scheme == "http" && base_.starts_with("https:") && !options_.insecure)
    return fail(ErrorCode::kPermission,
                "The registry " + shown(reference_.host) + " names a token service that speaks plain HTTP",
                "Use --insecure if that is acceptable.");
  const std::string scope = param(challenge, "scope").empty() ? "repository:" + reference_.path + ":pull"
                                                              : param(challenge, "scope");
  const std::string query =
      "service=" + url_encode(param(challenge, "service")) + "&scope=" + url_encode(scope);
  HttpRequest request;
  request.verify_tls = !options_.insecure;
  request.public_only = public_only();
  request.body_limit = kTokenLimit;
  request.cancel = options_.cancel;
  if (login && !login->identity_token.empty()) {
    request.url = realm;
    request.post_body = query + "&grant_type=refresh_token&client_id=drupe&refresh_token=" +
                        url_encode(login->identity_token);
  } else {
    request.url = realm + (realm.find('?') == std::string::npos ? "?" : "&") + query;
    if (login && login->helper.empty() && !login->username.empty())
      request.headers.push_back("Authorization: " + basic(*login));
  }
  DRUPE_ASSIGN(const HttpResponse response, http_->perform(request));
  if (response.status == 401 || response.status == 403)
    return std::unexpected(refusal(response, "image " + shown(reference_.path)));
  if (response.status != 200)
    return fail(ErrorCode::kUnavailable,
                "The token service " + shown(url.host) + " of the registry answered with status " +
                    std::to_string(response.status),
                "Try again later.");
  const auto json = nlohmann::json::parse(response.body, nullptr, false);
  std::string token;
  for (const char* key : {"token", "access_token"})
    if (token.empty() && json.is_object() && json.contains(key) && json[key].is_string())
      token = json[key].get<std::string>();
  if (token.empty() || !is_header_safe(token))
    return fail(ErrorCode::kUnavailable,
                "The token service " + shown(url.host) + " of the registry gave no token");
  authorization_ = "Bearer " + token;
  return {};
}

}  // namespace drupe
