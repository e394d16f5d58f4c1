// One HTTP request at a time over libcurl. Redirects are not followed here: whether to follow one, and with
// which headers, is the caller's policy.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "image/progress.h"

namespace drupe {

/// The parts of an absolute http or https URL that decide where a request goes.
struct Url {
  std::string scheme;  ///< "http" or "https".
  std::string host;    ///< Lower case; IPv6 in brackets.
  std::string port;    ///< Always there: the scheme's own where none was written.
  [[nodiscard]] std::string authority() const { return host + ":" + port; }
  bool operator==(const Url&) const = default;
};
/// kIntegrity for anything else, such as URLs with a user name, control characters or another scheme.
Result<Url> parse_url(std::string_view url);
/// Resolves a Location header against the absolute `base`.
[[nodiscard]] std::string resolve_url(const std::string& base, const std::string& location);
[[nodiscard]] std::string url_encode(std::string_view text);

struct HttpRequest {
  std::string url;
  std::vector<std::string> headers{};      ///< "Name: value".
  std::optional<std::string> post_body{};  ///< A form; otherwise it is a GET.
  bool verify_tls = true;
  bool public_only = false;                       ///< Refuse to connect to addresses that are not public.
  std::size_t body_limit = std::size_t{1} << 20;  ///< Of a body that is returned; more is kLimit.
  std::chrono::seconds limit{60};                 ///< For the whole request; 0: none, as long as bytes come.
  /// Takes the body of a 200 or 206 answer instead. `status` is that; an error ends the request with it.
  std::function<Status(int status, ByteView bytes)> on_body{};
  CancelFlag cancel = nullptr;
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  ///< Names in lower case; repeated ones joined by ", ".
  std::string body;
  [[nodiscard]] std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
};

/// Why the last request had no answer.
enum class HttpFailure : std::uint8_t {
  kNone,
  kConnect,  ///< Nobody listens there.
  kTls,      ///< It does not speak TLS (or not so that we understand).
  kBroken,   ///< The connection ended or stalled in the middle: worth another try.
  kOther,
};

/// Keeps connections open between requests. One thread at a time.
class HttpClient {
 public:
  static Result<std::unique_ptr<HttpClient>> open();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// An answer of any status; an error when there was none, with failure() to tell them apart.
  Result<HttpResponse> perform(const HttpRequest& request);
  [[nodiscard]] HttpFailure failure() const { return failure_; }
  /// Some request went to an address that is not public.
  [[nodiscard]] bool met_private() const { return met_private_; }

 private:
  struct Handle;
  struct Exchange;
  explicit HttpClient(std::unique_ptr<Handle> handle);
  Error explain(int code, const Exchange& exchange, const HttpRequest& request);

  std::unique_ptr<Handle> handle_;
  HttpFailure failure_ = HttpFailure::kNone;
  bool met_private_ = false;
};

}  // namespace drupe
