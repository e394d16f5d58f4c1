// One HTTP/1 request head, line by line and strictly: what two readers could read in two ways is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace drupe::net {

/// A request as far as its name and its framing go (RFC 9112). Lines come without CR LF, checked by the
/// caller to have no CR, LF or NUL within. Errors are kGuest.
class HttpHead {
 public:
  Status take_request_line(std::string_view line);
  Status take_header(std::string_view line);
  /// After the empty line: one Host, a target that agrees with it, at most one kind of framing.
  Status finish();

  [[nodiscard]] const std::string& host() const { return host_; }  ///< Without port; lower case not enforced.
  [[nodiscard]] bool has_host() const { return hosts_ == 1; }
  [[nodiscard]] bool is_connect() const { return method_ == "CONNECT"; }
  [[nodiscard]] bool chunked() const { return chunked_; }
  [[nodiscard]] std::uint64_t content_length() const { return length_.value_or(0); }
  [[nodiscard]] bool asks_upgrade() const { return !upgrade_.empty(); }
  /// The client offers WebSocket and nothing else (RFC 6455, 4.1).
  [[nodiscard]] bool offers_only_websocket() const;

  static constexpr std::size_t kMaxHeaders = 256;

 private:
  Status take_host(std::string_view value);
  Status take_length(std::string_view value);
  Status take_coding(std::string_view value);

  std::string method_, target_, host_, upgrade_;
  bool http10_ = false;
  bool chunked_ = false;
  int hosts_ = 0;
  std::size_t headers_ = 0;
  std::optional<std::uint64_t> length_;
};

/// A field line "name: value" with a token for a name and no blank before the colon (RFC 9112, 5.1); the
/// value without blanks around it.
struct HttpField {
  std::string_view name;
  std::string_view value;
};
[[nodiscard]] std::optional<HttpField> split_field(std::string_view line);

/// The host of "host" or "host:port"; nullopt for anything that is neither.
[[nodiscard]] std::optional<std::string_view> host_of_authority(std::string_view authority);

}  // namespace drupe::net
