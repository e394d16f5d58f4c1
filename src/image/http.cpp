#include "image/http.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include <unistd.h>

#include "image/address.h"
#include "image/curl.h"
#include "image/text.h"

namespace drupe {
namespace {

constexpr std::size_t kHeaderLimit = 64 * 1024;
/// Of the body of an answer that is an error: enough to say something about it.
constexpr std::size_t kErrorBodyLimit = 16 * 1024;
constexpr long kConnectSeconds = 15;
/// Without a byte for so long the connection is given up.
constexpr long kStallSeconds = 30;

struct HeaderList {
  const Curl& curl;
  curl_slist* list = nullptr;
  ~HeaderList() { curl.slist_free_all(list); }
};

bool uses_proxy() {
  for (const char* name : {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return true;
  return false;
}

}  // namespace

struct HttpClient::Handle {
  const Curl& curl;
  CURL* easy;
  ~Handle() { curl.easy_cleanup(easy); }
};

/// What the callbacks of one request share.
struct HttpClient::Exchange {
  const HttpRequest& request;
  const Curl& curl;
  CURL* easy;
  HttpResponse response{};
  std::size_t header_bytes = 0;
  std::optional<Error> error{};
  bool refused_address = false;
  bool met_private = false;
  bool behind_proxy = false;

  [[nodiscard]] int status() const {
    long code = 0;
    curl.easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
    return static_cast<int>(code);
  }

  static std::size_t on_header(char* bytes, std::size_t unit, std::size_t count, void* self) {
    return static_cast<Exchange*>(self)->take_header({bytes, unit * count}) ? unit * count : 0;
  }
  static std::size_t on_body(char* bytes, std::size_t unit, std::size_t count, void* self) {
    return static_cast<Exchange*>(self)->take_body({bytes, unit * count}) ? unit * count : 0;
  }
  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return cancelled(static_cast<Exchange*>(self)->request.cancel) ? 1 : 0;
  }
  static curl_socket_t on_socket(void* self, curlsocktype, curl_sockaddr* address) {
    auto& exchange = *static_cast<Exchange*>(self);
    if (!is_public_address(&address->addr, address->addrlen)) {
      if (exchange.request.public_only && !exchange.behind_proxy) {
        exchange.refused_address = true;
        return CURL_SOCKET_BAD;
      }
      exchange.met_private = true;
    }
    return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  }

  bool take_header(std::string_view line);
  bool take_body(std::string_view bytes);
};

bool HttpClient::Exchange::take_header(std::string_view line) {
  header_bytes += line.size();
  if (header_bytes > kHeaderLimit) {
    error = Error{ErrorCode::kLimit, "The server's answer has more than 64 KiB of headers", {}, 0};
    return false;
  }
  // Of several header blocks (100 Continue, a proxy's) only the last counts.
  if (line.starts_with("HTTP/")) response.headers.clear();
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return true;
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
  while (!value.empty() && (value.back() == '\r' || value.back() == '\n' || value.back() == ' '))
    value.remove_suffix(1);
  std::string& known = response.headers[to_lower(line.substr(0, colon))];
  known += (known.empty() ? "" : ", ") + std::string(value);
  return true;
}

bool HttpClient::Exchange::take_body(std::string_view bytes) {
  const int code = status();
  const bool success = code == 200 || code == 206;
  if (success && request.on_body) {
    if (auto taken = request.on_body(code, as_bytes(bytes)); !taken) {
      error = std::move(taken).error();
      return false;
    }
    return true;
  }
  if (success && response.body.size() + bytes.size() > request.body_limit) {
    error = Error{ErrorCode::kLimit,
                  "The server's answer is larger than " + std::to_string(request.body_limit) + " bytes",
                  {},
                  0};
    return false;
  }
  const std::size_t room =
      success ? bytes.size() : kErrorBodyLimit - std::min(kErrorBodyLimit, response.body.size());
  response.body.append(bytes.substr(0, room));
  return true;
}

HttpClient::HttpClient(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
HttpClient::~HttpClient() = default;

Result<std::unique_ptr<HttpClient>> HttpClient::open() {
  DRUPE_ASSIGN(const Curl* const curl, load_curl());
  CURL* const easy = curl->easy_init();
  if (easy == nullptr) return fail(ErrorCode::kHost, "Starting libcurl failed");
  return std::unique_ptr<HttpClient>(new HttpClient(std::make_unique<Handle>(*curl, easy)));
}

Result<HttpResponse> HttpClient::perform(const HttpRequest& request) {
  const Curl& curl = handle_->curl;
  CURL* const easy = handle_->easy;
  failure_ = HttpFailure::kOther;
  DRUPE_ASSIGN(const Url url, parse_url(request.url));
  if (request.public_only && is_private_literal(url.host))
    return fail(ErrorCode::kPermission, "The registry sends this program to " + shown(url.authority()) +
                                            ", which is not on the public internet");
  Exchange exchange{request, curl, easy};
  exchange.behind_proxy = uses_proxy();
  HeaderList headers{curl};
  for (const std::string& header : request.headers)
    headers.list = curl.slist_append(headers.list, header.c_str());

  std::array<char, CURL_ERROR_SIZE> text{};
  curl.easy_reset(easy);
  const auto set = [&](CURLoption option, auto value) { curl.easy_setopt(easy, option, value); };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_ERRORBUFFER, text.data());
  set(CURLOPT_USERAGENT, "drupe/" DRUPE_VERSION);
  set(CURLOPT_HTTPHEADER, headers.list);
  if (request.post_body) set(CURLOPT_POSTFIELDS, request.post_body->c_str());
  set(CURLOPT_SSL_VERIFYPEER, request.verify_tls ? 1L : 0L);
  set(CURLOPT_SSL_VERIFYHOST, request.verify_tls ? 2L : 0L);
  if (const char* authorities = std::getenv("SSL_CERT_FILE"); authorities != nullptr && *authorities != '\0')
    set(CURLOPT_CAINFO, authorities);
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, kStallSeconds);
  set(CURLOPT_TIMEOUT, static_cast<long>(request.limit.count()));
  set(CURLOPT_HEADERFUNCTION, &Exchange::on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&exchange));
  set(CURLOPT_WRITEFUNCTION, &Exchange::on_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&exchange));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &Exchange::on_progress);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&exchange));
  set(CURLOPT_OPENSOCKETFUNCTION, &Exchange::on_socket);
  set(CURLOPT_OPENSOCKETDATA, static_cast<void*>(&exchange));
  set(CURLOPT_BUFFERSIZE, 256L * 1024L);

  const CURLcode code = curl.easy_perform(easy);
  met_private_ = met_private_ || exchange.met_private;
  if (code != CURLE_OK) {
    Error error = explain(static_cast<int>(code), exchange, request);
    if (text[0] != '\0' && (failure_ != HttpFailure::kOther || error.code == ErrorCode::kUnavailable))
      error.message += std::string(" (") + text.data() + ")";
    return std::unexpected(std::move(error));
  }
  failure_ = HttpFailure::kNone;
  exchange.response.status = exchange.status();
  return std::move(exchange.response);
}

Error HttpClient::explain(int code, const Exchange& exchange, const HttpRequest& request) {
  if (exchange.error) return *exchange.error;
  if (cancelled(request.cancel)) return {ErrorCode::kCancelled, "The pull was stopped", {}, 0};
  const auto url = parse_url(request.url);
  const std::string where = shown(url ? url->host + ":" + url->port : request.url);
  if (exchange.refused_address)
    return {ErrorCode::kPermission,
            "The registry sends this program to " + where + ", which is not on the public internet",
            {},
            0};
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      failure_ = HttpFailure::kConnect;
      return {ErrorCode::kUnavailable, "The host " + where + " cannot be found",
              "Check its name and this machine's network.", 0};
    case CURLE_COULDNT_CONNECT:
      failure_ = HttpFailure::kConnect;
      return {ErrorCode::kUnavailable, "The host " + where + " cannot be reached",
              "Check its name and port, and this machine's network.", 0};
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return {ErrorCode::kUnavailable, "The certificate of " + where + " is not trusted",
              "Add its authority to this machine's (update-ca-certificates), or use --insecure if that is "
              "acceptable.",
              0};
    case CURLE_SSL_CONNECT_ERROR:
      failure_ = HttpFailure::kTls;
      return {ErrorCode::kUnavailable, "No TLS connection to " + where + " could be made",
              "If it speaks plain HTTP, use --insecure.", 0};
    case CURLE_OPERATION_TIMEDOUT:
      failure_ = HttpFailure::kBroken;
      return {ErrorCode::kUnavailable, "The host " + where + " does not answer in time", "Try again later.",
              0};
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      failure_ = HttpFailure::kBroken;
      return {ErrorCode::kUnavailable, "The connection to " + where + " broke",
              "Try again: what has arrived is kept.", 0};
    default:
      return {
          ErrorCode::kUnavailable,
          "The request to " + where + " failed: " + handle_->curl.easy_strerror(static_cast<CURLcode>(code)),
          {},
          0};
  }
}

}  // namespace drupe
