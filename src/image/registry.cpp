#include "image/registry.h"

#include <thread>

#include "image/digest.h"
#include "image/text.h"

namespace drupe {
namespace {

constexpr int kTries = 4;
constexpr int kRedirects = 5;
constexpr std::chrono::seconds kLongestPause{10};

constexpr const char* kAccept =
    "Accept: application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.docker.distribution.manifest.v2+json";

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}
bool is_passing(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

}  // namespace

Registry Registry::clone(const RegistryOptions& options) const {
  Registry other(reference_, options);
  other.base_ = base_;
  other.authorization_ = authorization_;
  other.private_registry_ = private_registry_;
  return other;
}

Status Registry::ready() {
  if (http_ == nullptr) {
    DRUPE_ASSIGN(http_, HttpClient::open());
  }
  return {};
}

bool Registry::public_only() const {
  return !private_registry_;
}

Status Registry::pause(int tries, const std::string& retry_after) const {
  std::chrono::milliseconds left = options_.retry_delay * (1 << tries);
  if (!retry_after.empty() && retry_after.size() < 4 && is_digit(retry_after[0]))
    left = std::max(left, std::chrono::milliseconds(1000 * std::atoi(retry_after.c_str())));
  left = std::min<std::chrono::milliseconds>(left, kLongestPause);
  constexpr std::chrono::milliseconds kStep{50};
  for (; left.count() > 0; left -= kStep) {
    if (cancelled(options_.cancel)) return fail(ErrorCode::kCancelled, "The pull was stopped");
    std::this_thread::sleep_for(std::min(left, kStep));
  }
  return {};
}

Error Registry::refusal(const HttpResponse& response, const std::string& what) const {
  const std::string registry = shown(reference_.host);
  switch (response.status) {
    case 401:
    case 403: {
      const auto login = find_credentials(reference_.host);
      if (login && *login && !(*login)->helper.empty())
        return {ErrorCode::kPermission,
                "The registry " + registry + " wants a login for " + what + ", which only the program " +
                    shown((*login)->helper) + " has",
                "Credential helpers are not asked: put the login into 'auths' of Docker's config.json.", 0};
      if (!login || !*login)
        return {ErrorCode::kPermission,
                "The registry " + registry + " does not show " + what +
                    " to everybody: it may not exist, or a login is needed",
                "Check the name; a login is read from 'auths' in ~/.docker/config.json ($DOCKER_CONFIG).", 0};
      return {ErrorCode::kPermission,
              "The registry " + registry + " refuses the login that Docker's config.json has for it (" +
                  what + ")",
              "Check the name of the image, and log in again.", 0};
    }
    case 404:
      return {ErrorCode::kNotFound, "The registry " + registry + " has no " + what,
              "Check the name and the tag.", 0};
    case 429:
      return {ErrorCode::kUnavailable, "The registry " + registry + " says that it was asked too often",
              "Wait some minutes, or log in.", 0};
    default:
      return {ErrorCode::kUnavailable,
              "The registry " + registry + " answered with status " + std::to_string(response.status) +
                  " when asked for " + what,
              "Try again later.", 0};
  }
}

Result<HttpResponse> Registry::first_contact(const std::string& path, const HttpRequest& pattern) {
  const std::string host = reference_.host == kDefaultHost ? "registry-1.docker.io" : reference_.host;
  HttpRequest request = pattern;
  base_ = "https://" + host;
  request.url = base_ + path;
  auto response = http_->perform(request);
  if (!response && options_.insecure &&
      (http_->failure() == HttpFailure::kTls || http_->failure() == HttpFailure::kConnect ||
       http_->failure() == HttpFailure::kBroken)) {
    base_ = "http://" + host;
    request.url = base_ + path;
    response = http_->perform(request);
  }
  // A first contact that failed has decided nothing.
  if (!response) base_.clear();
  private_registry_ = http_->met_private();
  return response;
}

Result<HttpResponse> Registry::follow(const std::string& url, HttpResponse response,
                                      const HttpRequest& pattern) {
  std::string at = url;
  for (int hops = 0; is_redirect(response.status); ++hops) {
    if (hops == kRedirects)
      return fail(ErrorCode::kUnavailable,
                  "The registry " + shown(reference_.host) + " redirects without end");
    const std::string location = response.header("location");
    if (location.empty())
      return fail(ErrorCode::kUnavailable,
                  "The registry " + shown(reference_.host) + " redirects to nowhere");
    DRUPE_ASSIGN(const Url from, parse_url(at));
    at = resolve_url(at, location);
    DRUPE_ASSIGN(const Url to, parse_url(at));
    if (from.scheme == "https" && to.scheme == "http" && !options_.insecure)
      return fail(
          ErrorCode::kPermission,
          "The registry " + shown(reference_.host) + " redirects to plain HTTP at " + shown(to.authority()),
          "Use --insecure if that is acceptable.");
    HttpRequest request = pattern;
    request.url = at;
    request.public_only = public_only();
    DRUPE_ASSIGN(const Url home, parse_url(base_));
    if (to == home && !authorization_.empty()) request.headers.push_back("Authorization: " + authorization_);
    DRUPE_ASSIGN(response, http_->perform(request));
  }
  return response;
}

Result<HttpResponse> Registry::get_once(const std::string& path, const HttpRequest& pattern) {
  DRUPE_TRY(ready());
  HttpRequest request = pattern;
  request.verify_tls = !options_.insecure;
  request.cancel = options_.cancel;
  for (int logins = 0;; ++logins) {
    HttpRequest own = request;
    if (!authorization_.empty()) own.headers.push_back("Authorization: " + authorization_);
    Result<HttpResponse> response;
    if (base_.empty()) {
      response = first_contact(path, own);
    } else {
      own.url = base_ + path;
      response = http_->perform(own);
    }
    if (!response) return response;
    if (response->status == 401 && logins == 0) {
      DRUPE_TRY(log_in(*response));
      if (!authorization_.empty()) continue;
    }
    return follow(base_ + path, *std::move(response), request);
  }
}

Result<HttpResponse> Registry::get(const std::string& path, const HttpRequest& pattern) {
  for (int tries = 0;; ++tries) {
    auto response = get_once(path, pattern);
    const bool again = response ? is_passing(response->status)
                                : http_ != nullptr && http_->failure() == HttpFailure::kBroken;
    if (!again || tries + 1 == kTries) return response;
    DRUPE_TRY(pause(tries, response ? response->header("retry-after") : ""));
  }
}

Result<FetchedManifest> Registry::manifest(const std::string& selector) {
  HttpRequest request;
  request.headers = {kAccept};
  request.body_limit = kManifestLimit;
  DRUPE_ASSIGN(HttpResponse response, get("/v2/" + reference_.path + "/manifests/" + selector, request));
  const bool by_digest = selector.starts_with("sha256:");
  const std::string what = shown(reference_.path + (by_digest ? "@" : ":") + selector);
  if (response.status != 200) return std::unexpected(refusal(response, "image " + what));
  FetchedManifest fetched;
  fetched.digest = sha256_hex(response.body);
  const std::string told = response.header("docker-content-digest");
  if ((by_digest && selector != "sha256:" + fetched.digest) ||
      (told.starts_with("sha256:") && told != "sha256:" + fetched.digest))
    return fail(ErrorCode::kIntegrity,
                "The manifest that the registry " + shown(reference_.host) + " sent for " + what +
                    " does not have the digest it should have",
                "Try again; if it stays so, the registry or something before it is broken.");
  const std::string type = response.header("content-type");
  fetched.media_type = type.substr(0, type.find(';'));
  fetched.bytes = std::move(response.body);
  return fetched;
}

Result<std::string> Registry::blob(const Descriptor& blob, std::size_t limit) {
  HttpRequest request;
  request.body_limit = limit;
  DRUPE_ASSIGN(HttpResponse response,
               get("/v2/" + reference_.path + "/blobs/sha256:" + blob.digest, request));
  if (response.status != 200)
    return std::unexpected(refusal(
        response, "blob sha256:" + blob.digest.substr(0, 12) + " of the image " + shown(reference_.path)));
  if (response.body.size() != blob.size || sha256_hex(response.body) != blob.digest)
    return fail(ErrorCode::kIntegrity,
                "The config that the registry " + shown(reference_.host) +
                    " sent does not have the size and digest that the manifest names",
                "Try again; if it stays so, the image must be pushed again.");
  return std::move(response.body);
}

}  // namespace drupe
