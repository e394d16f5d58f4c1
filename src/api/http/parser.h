// Reads one HTTP/1.1 request. The only user of Boost.Beast, whose parser it is; no sockets here.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "api/http/message.h"
#include "base/result.h"

namespace drupe::api {

/// Longest head of a request, request line included.
inline constexpr std::size_t kMaxHeadBytes = std::size_t{64} * 1024;
inline constexpr std::size_t kMaxHeaders = 100;

/// Length of the complete head at the front of `bytes`, its blank line included; 0 while it is incomplete.
[[nodiscard]] std::size_t head_length(std::string_view bytes);

/// How HTTP/2 with prior knowledge begins (RFC 9113, 3.4).
inline constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// One request; a new one for each. Hostile bytes give an error, after which only destruction is allowed.
class RequestParser {
 public:
  RequestParser();
  ~RequestParser();
  RequestParser(RequestParser&&) noexcept;
  RequestParser& operator=(RequestParser&&) noexcept;

  /// `head` is what head_length() found. Fills everything but segments and query. kInvalidArgument: not
  /// HTTP/1.x, malformed, or framed both by length and in chunks.
  Result<RequestHead> head(std::string_view head);

  struct Progress {
    std::size_t consumed = 0;  ///< Of `in`; the rest must be given again, with more behind it.
    std::size_t produced = 0;
    bool done = false;  ///< The body is complete.
  };
  /// Decodes the next part of the body: from `in` into `out`.
  Result<Progress> body(std::string_view in, std::span<char> out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace drupe::api
