// URLs, as far as they decide where a request goes.
#include <algorithm>

#include "image/http.h"
#include "image/text.h"

namespace drupe {
namespace {

std::unexpected<Error> bad(std::string_view url) {
  return fail(ErrorCode::kIntegrity, shown(url) + " is not an http or https URL that can be used");
}

bool has_scheme(std::string_view location) {
  const std::size_t colon = location.find(':');
  return colon != std::string_view::npos && colon != 0 &&
         std::ranges::all_of(location.substr(0, colon),
                             [](char c) { return is_alnum(c) || c == '+' || c == '-' || c == '.'; });
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  // Whatever could be read in two ways by two parsers is refused, so that this one and libcurl's agree on the
  // host.
  constexpr std::size_t kLongest = 16 * 1024;
  if (text.size() > kLongest ||
      !std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~' && c != '\\'; }))
    return bad(text);
  Url url;
  const std::size_t mark = text.find("://");
  if (mark == std::string_view::npos) return bad(text);
  url.scheme = to_lower(text.substr(0, mark));
  if (url.scheme != "http" && url.scheme != "https") return bad(text);
  std::string_view authority = text.substr(mark + 3);
  authority = authority.substr(0, authority.find_first_of("/?#"));
  if (authority.empty() || authority.find('@') != std::string_view::npos) return bad(text);
  std::string_view port;
  const std::size_t colon = authority.rfind(':');
  const std::size_t bracket = authority.rfind(']');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || bracket < colon)) {
    port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
    if (port.empty() || port.size() > 5 || !std::ranges::all_of(port, is_digit)) return bad(text);
  }
  const bool literal = authority.starts_with('[') && authority.ends_with(']') && authority.size() > 2;
  const auto allowed = [literal](char c) {
    return is_alnum(c) || c == '-' || c == '.' || c == '_' || (literal && (c == ':' || c == '[' || c == ']'));
  };
  if (authority.empty() || !std::ranges::all_of(authority, allowed)) return bad(text);
  url.host = to_lower(authority);
  url.port = port.empty() ? (url.scheme == "https" ? "443" : "80") : std::string(port);
  return url;
}

std::string resolve_url(const std::string& base, const std::string& location) {
  if (has_scheme(location)) return location;
  const std::size_t mark = base.find("://");
  if (location.starts_with("//")) return base.substr(0, mark + 1) + location;
  const std::size_t path = std::min(base.find_first_of("/?#", mark + 3), base.size());
  if (location.starts_with('/')) return base.substr(0, path) + location;
  const std::string whole = base.substr(0, base.find_first_of("?#"));
  if (location.starts_with('?')) return whole + location;
  const std::size_t slash = whole.rfind('/');
  return (slash < path || slash == std::string::npos ? whole.substr(0, path) + "/"
                                                     : whole.substr(0, slash + 1)) +
         location;
}

std::string url_encode(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (is_alnum(c) || c == '-' || c == '_' || c == '.' || c == '~') {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

}  // namespace drupe
