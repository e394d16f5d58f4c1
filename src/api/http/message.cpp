#include "api/http/message.h"

#include <algorithm>

namespace drupe::api {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::optional<std::string_view> RequestHead::header(std::string_view name) const {
  const auto found = std::ranges::find(headers, name, &Header::name);
  if (found == headers.end()) return std::nullopt;
  return found->value;
}

std::optional<std::string_view> RequestHead::parameter(std::string_view name) const {
  for (const auto& [key, value] : query)
    if (key == name) return value;
  return std::nullopt;
}

bool RequestHead::header_has(std::string_view name, std::string_view token) const {
  for (const Header& one : headers) {
    if (one.name != name) continue;
    std::string_view rest = one.value;
    while (!rest.empty()) {
      const auto comma = rest.find(',');
      const std::string_view word = trimmed(rest.substr(0, comma));
      rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
      if (std::ranges::equal(word, token, [](char a, char b) { return lower(a) == lower(b); })) return true;
    }
  }
  return false;
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 101:
      return "Switching Protocols";
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

}  // namespace drupe::api
