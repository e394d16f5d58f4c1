#include "net/inspect/http_head.h"

#include <algorithm>

#include "net/policy/name.h"
#include "net/policy/text.h"

namespace drupe::net {
namespace {

std::unexpected<Error> bad(std::string why) {
  return fail(ErrorCode::kGuest, "The HTTP request is malformed: " + std::move(why));
}

bool is_token_char(char c) {
  return is_alnum(c) || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, is_token_char);
}

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool same_host(std::string_view a, std::string_view b) {
  const auto x = normal_name(a);
  const auto y = normal_name(b);
  return x && y ? *x == *y : equal_ignoring_case(a, b);
}

}  // namespace

std::optional<HttpField> split_field(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return std::nullopt;
  return HttpField{line.substr(0, colon), without_blanks(line.substr(colon + 1))};
}

std::optional<std::string_view> host_of_authority(std::string_view authority) {
  std::string_view host = authority;
  std::size_t colon = authority.rfind(':');
  if (authority.starts_with('[')) {
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    host = authority.substr(0, close + 1);
    if (close + 1 == authority.size()) return host;
    if (authority[close + 1] != ':') return std::nullopt;
    colon = close + 1;
  } else if (colon != std::string_view::npos) {
    host = authority.substr(0, colon);
  }
  if (colon != std::string_view::npos) {
    const std::string_view port = authority.substr(colon + 1);
    if (port.size() > 5 || !std::ranges::all_of(port, is_digit)) return std::nullopt;
  }
  const bool plain = std::ranges::all_of(host, [&](char c) {
    return is_alnum(c) || c == '-' || c == '_' || c == '.' ||
           (host.starts_with('[') && (c == ':' || c == '[' || c == ']'));
  });
  if (host.empty() || !plain) return std::nullopt;
  return host;
}

Status HttpHead::take_request_line(std::string_view line) {
  const std::size_t first = line.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos) return bad("its first line has not three parts");
  method_ = line.substr(0, first);
  target_ = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  if (!is_token(method_)) return bad("its method is no word");
  if (version == "HTTP/2.0" && method_ == "PRI")
    return fail(ErrorCode::kGuest, "HTTP/2 without TLS does not show which server it asks");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return bad("its version is not 1.0 or 1.1");
  http10_ = version == "HTTP/1.0";
  const bool visible =
      std::ranges::all_of(target_, [](char c) { return static_cast<unsigned char>(c) > ' ' && c != '\x7f'; });
  if (target_.empty() || !visible) return bad("its target has blanks or control characters");
  return {};
}

Status HttpHead::take_header(std::string_view line) {
  if (++headers_ > kMaxHeaders) return bad("it has too many header fields");
  if (line.front() == ' ' || line.front() == '\t') return bad("a header field goes on in the next line");
  const auto field = split_field(line);
  if (!field) return bad("a header field has no proper name");
  const std::string name = to_lower(field->name);
  if (name == "host") return take_host(field->value);
  if (name == "content-length") return take_length(field->value);
  if (name == "transfer-encoding") return take_coding(field->value);
  if (name == "upgrade") {
    if (!upgrade_.empty()) upgrade_ += ",";
    upgrade_ += field->value;
  }
  return {};
}

Status HttpHead::take_host(std::string_view value) {
  if (++hosts_ > 1) return bad("it has several Host fields");
  const auto host = host_of_authority(value);
  if (!host) return bad("its Host field is no host name");
  host_ = *host;
  return {};
}

Status HttpHead::take_length(std::string_view value) {
  constexpr std::size_t kMostDigits = 18;
  if (length_) return bad("it has several Content-Length fields");
  if (value.empty() || value.size() > kMostDigits || !std::ranges::all_of(value, is_digit))
    return bad("its Content-Length is no number");
  std::uint64_t length = 0;
  for (const char c : value) length = length * 10 + static_cast<std::uint64_t>(c - '0');
  length_ = length;
  return {};
}

Status HttpHead::take_coding(std::string_view value) {
  if (chunked_) return bad("it has several Transfer-Encoding fields");
  if (!equal_ignoring_case(value, "chunked")) return bad("its Transfer-Encoding is not just 'chunked'");
  chunked_ = true;
  return {};
}

Status HttpHead::finish() {
  if (chunked_ && length_) return bad("it has both Content-Length and Transfer-Encoding");
  if (chunked_ && http10_) return bad("HTTP/1.0 has no Transfer-Encoding");
  if (is_connect()) {
    const auto host = host_of_authority(target_);
    if (!host) return bad("its target is no host and port");
    if (hosts_ == 1 && !same_host(*host, host_)) return bad("its target and its Host field differ");
    host_ = *host;
    return {};
  }
  if (target_.front() == '/') return {};
  if (target_ == "*") {
    if (method_ == "OPTIONS") return {};
    return bad("only OPTIONS has the target '*'");
  }
  const std::size_t mark = target_.find("://");
  const std::string scheme = to_lower(std::string_view(target_).substr(0, std::min(mark, target_.size())));
  if (mark == std::string::npos || (scheme != "http" && scheme != "https"))
    return bad("its target is neither a path nor a URL");
  std::string_view authority = std::string_view(target_).substr(mark + 3);
  authority = authority.substr(0, authority.find_first_of("/?#"));
  const auto host = host_of_authority(authority);
  if (!host) return bad("its target names no proper host");
  if (hosts_ != 1 || !same_host(*host, host_)) return bad("its target and its Host field differ");
  return {};
}

bool HttpHead::offers_only_websocket() const {
  return equal_ignoring_case(upgrade_, "websocket");
}

}  // namespace drupe::net
