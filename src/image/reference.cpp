#include "image/reference.h"

#include <algorithm>

#include "image/digest.h"
#include "image/text.h"

namespace drupe {
namespace {

constexpr std::size_t kTagLimit = 128;
constexpr std::string_view kOfficial = "library/";

std::unexpected<Error> bad(std::string_view text, std::string_view why) {
  return fail(ErrorCode::kInvalidArgument, shown(text) + " is not an image name: " + std::string(why),
              "Write it as [host[:port]/]name[:tag] or name@sha256:digest, for example python:3.12-slim.");
}

/// A path component of the distribution specification: alphanumeric runs joined by '.', '_', '__' or any
/// number of '-'.
bool is_component(std::string_view text) {
  std::size_t at = 0;
  while (true) {
    const std::size_t run = at;
    while (at < text.size() && (is_lower(text[at]) || is_digit(text[at]))) ++at;
    if (at == run) return false;
    if (at == text.size()) return true;
    const std::size_t joint = at;
    while (at < text.size() && !is_lower(text[at]) && !is_digit(text[at])) ++at;
    const std::string_view separator = text.substr(joint, at - joint);
    if (separator != "." && separator != "_" && separator != "__" &&
        separator.find_first_not_of('-') != std::string_view::npos)
      return false;
  }
}

bool is_path(std::string_view path) {
  while (true) {
    const std::size_t slash = path.find('/');
    if (!is_component(path.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

bool is_tag(std::string_view tag) {
  if (tag.empty() || tag.size() > kTagLimit || !(is_alnum(tag[0]) || tag[0] == '_')) return false;
  return std::ranges::all_of(tag, [](char c) { return is_alnum(c) || c == '_' || c == '.' || c == '-'; });
}

bool is_port(std::string_view text) {
  if (text.empty() || text.size() > 5 || !std::ranges::all_of(text, is_digit)) return false;
  const int port = std::stoi(std::string(text));
  return port >= 1 && port <= 65535;
}

bool is_host_name(std::string_view name) {
  if (name.empty()) return false;
  while (true) {
    const std::size_t dot = name.find('.');
    const std::string_view label = name.substr(0, dot);
    if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-') return false;
    if (!std::ranges::all_of(label, [](char c) { return is_alnum(c) || c == '-'; })) return false;
    if (dot == std::string_view::npos) return true;
    name.remove_prefix(dot + 1);
  }
}

bool is_host(std::string_view host) {
  std::string_view port;
  if (host.starts_with('[')) {
    const std::size_t close = host.find(']');
    if (close == std::string_view::npos || close < 3) return false;
    const auto address = host.substr(1, close - 1);
    if (address.find_first_not_of("0123456789abcdefABCDEF:.") != std::string_view::npos) return false;
    port = host.substr(close + 1);
    return port.empty() || (port.front() == ':' && is_port(port.substr(1)));
  }
  const std::size_t colon = host.find(':');
  if (colon != std::string_view::npos && !is_port(host.substr(colon + 1))) return false;
  return is_host_name(host.substr(0, colon));
}

/// Docker's rule: the first component is a host when it could not be a component of a name on the default
/// host.
bool looks_like_host(std::string_view first) {
  return first == "localhost" || first.find_first_of(".:[") != std::string_view::npos;
}

}  // namespace

std::string Reference::canonical() const {
  return host + "/" + path + (digest.empty() ? ":" + tag : "@sha256:" + digest);
}

std::string Reference::familiar() const {
  std::string text = canonical();
  if (host != kDefaultHost) return text;
  text.erase(0, host.size() + 1);
  const bool official = text.starts_with(kOfficial) && path.find('/', kOfficial.size()) == std::string::npos;
  if (official) text.erase(0, kOfficial.size());
  return text;
}

Result<Reference> parse_reference(std::string_view text) {
  if (text.empty())
    return fail(ErrorCode::kInvalidArgument, "The image name is empty", "For example: python:3.12-slim.");
  if (text.find("://") != std::string_view::npos)
    return bad(text, "it is a URL; leave away everything up to '://'");
  Reference reference;
  std::string_view rest = text;
  if (const std::size_t at = rest.find('@'); at != std::string_view::npos) {
    auto digest = parse_digest(rest.substr(at + 1));
    if (!digest) return bad(text, digest.error().message);
    reference.digest = *std::move(digest);
    rest = rest.substr(0, at);
  }
  if (const std::size_t slash = rest.find('/');
      slash != std::string_view::npos && looks_like_host(rest.substr(0, slash))) {
    reference.host = to_lower(rest.substr(0, slash));
    if (!is_host(reference.host))
      return bad(text, shown(reference.host) + " is not a host name with an optional port");
    rest.remove_prefix(slash + 1);
  }
  const std::size_t colon = rest.rfind(':');
  if (colon != std::string_view::npos && rest.find('/', colon) == std::string_view::npos) {
    reference.tag = rest.substr(colon + 1);
    if (!is_tag(reference.tag))
      return bad(text,
                 "the tag may have 1 to 128 letters, digits and '_', '.', '-', and must start with a letter, "
                 "a digit or '_'");
    rest = rest.substr(0, colon);
  } else if (reference.digest.empty()) {
    reference.tag = "latest";
  }
  if (std::ranges::any_of(rest, [](char c) { return c >= 'A' && c <= 'Z'; }))
    return bad(text, "names are written in lower case");
  if (!is_path(rest))
    return bad(text, "a name has lower-case letters and digits, joined by single '.', '_' or '-' and by '/'");
  reference.path = rest;
  if (reference.host.empty() && is_sha256_hex(rest))
    return bad(text, "64 hexadecimal digits are an id, not a name");
  if (reference.host.empty() || reference.host == "index.docker.io") reference.host = kDefaultHost;
  if (reference.host == kDefaultHost && rest.find('/') == std::string_view::npos)
    reference.path.insert(0, kOfficial);
  if (reference.canonical().size() > kReferenceLimit)
    return bad(text, "it is longer than " + std::to_string(kReferenceLimit) + " bytes");
  return reference;
}

}  // namespace drupe
