#include "image/auth.h"

#include <array>
#include <cstdint>
#include <cstdlib>

#include <fcntl.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "image/text.h"

namespace drupe {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kConfigFileLimit = std::size_t{1} << 20;
constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Reads the grammar of RFC 9110: tokens, quoted strings, separators.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : rest_(text) {}
  [[nodiscard]] bool done() const { return rest_.empty(); }
  void skip(std::string_view characters) {
    while (!rest_.empty() && characters.find(rest_.front()) != std::string_view::npos) rest_.remove_prefix(1);
  }
  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string token() {
    std::size_t end = 0;
    while (end < rest_.size() &&
           (is_alnum(rest_[end]) ||
            std::string_view("!#$%&'*+-.^_`|~").find(rest_[end]) != std::string_view::npos))
      ++end;
    std::string out(rest_.substr(0, end));
    rest_.remove_prefix(end);
    return out;
  }
  std::string value() {
    if (!take('"')) {
      // Some servers write URLs without quotes.
      const std::size_t end = std::min(rest_.find_first_of(", \t"), rest_.size());
      std::string out(rest_.substr(0, end));
      rest_.remove_prefix(end);
      return out;
    }
    std::string out;
    while (!rest_.empty() && rest_.front() != '"') {
      if (rest_.front() == '\\' && rest_.size() > 1) rest_.remove_prefix(1);
      out += rest_.front();
      rest_.remove_prefix(1);
    }
    take('"');
    return out;
  }

 private:
  std::string_view rest_;
};

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<Credentials> read_entry(const Json& entry) {
  Credentials found;
  found.identity_token = text_of(entry, "identitytoken");
  found.username = text_of(entry, "username");
  found.password = text_of(entry, "password");
  if (const std::string joined = text_of(entry, "auth"); !joined.empty()) {
    const auto plain = base64_decode(joined);
    const std::size_t colon = plain ? plain->find(':') : std::string::npos;
    if (colon == std::string::npos)
      return fail(ErrorCode::kInvalidArgument,
                  "Docker's configuration file has an 'auth' entry that is not base64 of 'user:password'",
                  "Log in again with the tool that wrote it.");
    found.username = plain->substr(0, colon);
    found.password = plain->substr(colon + 1);
    // Docker pads the password with NUL bytes in some versions.
    while (!found.password.empty() && found.password.back() == '\0') found.password.pop_back();
  }
  return found;
}

}  // namespace

std::vector<Challenge> parse_challenges(std::string_view header) {
  std::vector<Challenge> out;
  HeaderReader reader(header);
  while (true) {
    reader.skip(" \t,");
    const std::string word = reader.token();
    if (word.empty()) return out;
    reader.skip(" \t");
    if (!reader.take('=')) {
      out.push_back({to_lower(word), {}});
      continue;
    }
    if (out.empty()) return out;
    reader.skip(" \t");
    out.back().params.emplace(to_lower(word), reader.value());
  }
}

Result<std::optional<Credentials>> credentials_from(std::string_view text, const std::string& host) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object())
    return fail(ErrorCode::kInvalidArgument, "Docker's configuration file is not a JSON object",
                "Repair or remove it.");
  std::vector<std::string> keys{host,
                                "https://" + host,
                                "https://" + host + "/",
                                "https://" + host + "/v1/",
                                "https://" + host + "/v2/",
                                "http://" + host};
  if (host == "docker.io")
    keys = {"https://index.docker.io/v1/", "index.docker.io", "docker.io", "https://index.docker.io/v1"};
  const auto auths = json.find("auths");
  const auto helpers = json.find("credHelpers");
  for (const std::string& key : keys) {
    if (auths != json.end() && auths->is_object() && auths->contains(key) && (*auths)[key].is_object()) {
      DRUPE_ASSIGN(auto found, read_entry((*auths)[key]));
      // With a store Docker leaves empty entries as a note of where one is logged in.
      if (!found.username.empty() || !found.identity_token.empty()) return found;
    }
    if (helpers != json.end() && helpers->is_object() && !text_of(*helpers, key.c_str()).empty())
      return Credentials{{}, {}, {}, "docker-credential-" + text_of(*helpers, key.c_str())};
  }
  if (const std::string store = text_of(json, "credsStore"); !store.empty())
    return Credentials{{}, {}, {}, "docker-credential-" + store};
  return std::nullopt;
}

Result<std::optional<Credentials>> find_credentials(const std::string& host) {
  std::string path;
  if (const char* folder = std::getenv("DOCKER_CONFIG"); folder != nullptr && *folder != '\0') {
    path = std::string(folder) + "/config.json";
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    path = std::string(home) + "/.docker/config.json";
  } else {
    return std::nullopt;
  }
  auto text = read_file(AT_FDCWD, path, kConfigFileLimit);
  if (!text) {
    if (text.error().code == ErrorCode::kNotFound) return std::nullopt;
    return std::unexpected(std::move(text).error().in("Looking for a login to the registry failed"));
  }
  return credentials_from(*text, host);
}

std::string base64_encode(std::string_view bytes) {
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (at + i < bytes.size() ? static_cast<std::uint8_t>(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i)
      out += at + i > bytes.size() ? '=' : kAlphabet[group >> (18 - 6 * i) & 63];
  }
  return out;
}

std::optional<std::string> base64_decode(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    const std::size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    group = (group << 6 | static_cast<std::uint32_t>(value)) & 0xffffff;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out += static_cast<char>(group >> bits & 0xff);
  }
  return out;
}

}  // namespace drupe
