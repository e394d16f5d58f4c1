// What an HTTP/1.1 request says before its body, and a whole response.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace drupe::api {

struct Header {
  std::string name;  ///< Of a request: lower-case.
  std::string value;
};

struct RequestHead {
  std::string method;  ///< As sent: "GET".
  std::string target;  ///< As sent; hostile bytes, not for logs without escaping.
  std::vector<Header> headers;
  std::optional<std::uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = true;
  bool expect_continue = false;

  // Of the target, after split_target().
  std::vector<std::string> segments;                       ///< Decoded: "/v1/a%2Fb" is {"v1", "a/b"}.
  std::vector<std::pair<std::string, std::string>> query;  ///< Decoded, in order.

  [[nodiscard]] bool has_body() const { return chunked || content_length.value_or(0) != 0; }
  /// First header of that (lower-case) name.
  [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const;
  [[nodiscard]] std::optional<std::string_view> parameter(std::string_view name) const;
  /// Whether a comma-separated header has `token`, in any case.
  [[nodiscard]] bool header_has(std::string_view name, std::string_view token) const;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<Header> headers;
};

/// "Not Found"; an unknown status gives "Status".
[[nodiscard]] std::string_view reason_phrase(int status);

}  // namespace drupe::api
