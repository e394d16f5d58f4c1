#include "api/http/url.h"

namespace drupe::api {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Result<std::string> percent_decode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0)
        return fail(ErrorCode::kInvalidArgument,
                    "The request's address has a '%' without two hexadecimal digits");
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return out;
}

Status split_target(RequestHead& head) {
  std::string_view target = head.target;
  if (!target.starts_with('/'))
    return fail(ErrorCode::kInvalidArgument, "The request's address does not begin with '/'");
  target = target.substr(0, target.find('#'));
  const auto mark = target.find('?');
  std::string_view path = target.substr(1, mark == std::string_view::npos ? mark : mark - 1);
  while (true) {
    const auto slash = path.find('/');
    DRUPE_ASSIGN(std::string segment, percent_decode(path.substr(0, slash), false));
    head.segments.push_back(std::move(segment));
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  if (mark == std::string_view::npos) return {};
  std::string_view rest = target.substr(mark + 1);
  while (!rest.empty()) {
    const auto end = rest.find('&');
    const std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (pair.empty()) continue;
    const auto equals = pair.find('=');
    DRUPE_ASSIGN(std::string name, percent_decode(pair.substr(0, equals), true));
    std::string value;
    if (equals != std::string_view::npos) {
      DRUPE_ASSIGN(value, percent_decode(pair.substr(equals + 1), true));
    }
    head.query.emplace_back(std::move(name), std::move(value));
  }
  return {};
}

}  // namespace drupe::api
