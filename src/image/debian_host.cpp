#include "image/debian_host.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include "base/files.h"
#include "base/npm_default.h"

namespace drupe {
namespace {

constexpr std::size_t kMaxConfig = std::size_t{1} << 20;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string without_slash(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  return text;
}

std::string slurp(const std::string& path) {
  auto text = read_file(AT_FDCWD, path, kMaxConfig);
  return text ? *std::move(text) : std::string();
}

std::string host_sources() {
  std::string all = slurp("/etc/apt/sources.list");
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/etc/apt/sources.list.d", error))
    files.push_back(entry.path().string());
  std::ranges::sort(files);
  for (const std::string& file : files)
    if (file.ends_with(".list") || file.ends_with(".sources")) all += "\n" + slurp(file);
  return all;
}

/// The value of "registry" in an npmrc.
std::string registry_of(const std::string& npmrc) {
  std::istringstream lines(npmrc);
  std::string line;
  while (std::getline(lines, line)) {
    std::erase_if(line, [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '"'; });
    constexpr std::string_view kKey = "registry=";
    if (line.starts_with(kKey)) return line.substr(kKey.size());
  }
  return {};
}

bool is_program(const std::string& path) {
  return ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

DebianMirror find_mirror(std::string_view sources) {
  DebianMirror mirror;
  std::istringstream lines{std::string(sources)};
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word != "deb" && word != "URIs:") continue;
    while (words >> word) {
      const bool is_uri = word.starts_with("http://") || word.starts_with("https://");
      const std::string uri = without_slash(word);
      if (is_uri && uri.ends_with("/debian") && mirror.archive.empty()) mirror.archive = uri;
      if (is_uri && uri.ends_with("/debian-security") && mirror.security.empty()) mirror.security = uri;
    }
  }
  return mirror;
}

Result<DebianMirror> host_mirror() {
  DebianMirror mirror = find_mirror(host_sources());
  if (const std::string named = variable("DRUPE_DEBIAN_MIRROR"); !named.empty())
    mirror = {without_slash(named), without_slash(variable("DRUPE_DEBIAN_SECURITY_MIRROR"))};
  if (mirror.archive.empty())
    return fail(ErrorCode::kNotFound, "The apt sources of this machine name no mirror of Debian",
                "Set DRUPE_DEBIAN_MIRROR to the address of one.");
  return mirror;
}

std::vector<std::string> source_lines(const DebianMirror& mirror, const std::string& suite) {
  std::vector<std::string> lines{"deb " + mirror.archive + " " + suite + " main",
                                 "deb " + mirror.archive + " " + suite + "-updates main"};
  if (!mirror.security.empty()) lines.push_back("deb " + mirror.security + " " + suite + "-security main");
  return lines;
}

Result<std::string> npm_registry() {
  for (const char* name : {"DRUPE_NPM_REGISTRY", "npm_config_registry", "NPM_CONFIG_REGISTRY"})
    if (const std::string value = variable(name); !value.empty()) return without_slash(value);
  for (const std::string& file : {variable("HOME") + "/.npmrc", std::string("/etc/npmrc")})
    if (const std::string value = registry_of(slurp(file)); !value.empty()) return without_slash(value);
  const std::string standard =
      npm_default_registry([](const std::string& path) -> std::optional<std::string> {
        auto text = read_file(AT_FDCWD, path, kMaxConfig);
        if (!text) return std::nullopt;
        return *std::move(text);
      });
  if (!standard.empty()) return without_slash(standard);
  return fail(ErrorCode::kNotFound,
              "npm is neither installed on this machine nor configured, so nothing says where npm packages "
              "come from",
              "Set DRUPE_NPM_REGISTRY to the address of a registry, or install npm.");
}

bool has_subordinate_ids(std::string_view subids, std::string_view user, std::uint32_t uid) {
  constexpr std::uint64_t kWanted = 65536;
  std::istringstream lines{std::string(subids)};
  std::string line;
  while (std::getline(lines, line)) {
    const auto first = line.find(':');
    const auto second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string_view owner = std::string_view(line).substr(0, first);
    std::uint64_t count = 0;
    std::from_chars(line.data() + second + 1, line.data() + line.size(), count);
    if ((owner == user || owner == std::to_string(uid)) && count >= kWanted) return true;
  }
  return false;
}

Result<std::string> build_mode() {
  if (!is_program("/usr/bin/mmdebstrap"))
    return fail(ErrorCode::kNotFound,
                "mmdebstrap, which installs Debian's packages into an image, is missing",
                "Install it: apt-get install mmdebstrap");
  if (::geteuid() == 0) return "root";
  if (!is_program("/usr/bin/newuidmap"))
    return fail(ErrorCode::kNotFound, "newuidmap, which building an image without root needs, is missing",
                "Install it: apt-get install uidmap");
  char buffer[4096];
  passwd entry{};
  passwd* found = nullptr;
  const uid_t uid = ::geteuid();
  const bool known = ::getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) == 0 && found != nullptr;
  const std::string user = known ? found->pw_name : std::to_string(uid);
  if (!has_subordinate_ids(slurp("/etc/subuid"), user, uid) ||
      !has_subordinate_ids(slurp("/etc/subgid"), user, uid))
    return fail(ErrorCode::kPermission,
                "The user " + user +
                    " has no subordinate user and group ids, which building an image without root needs",
                "Give a range: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 " + user);
  return "unshare";
}

}  // namespace drupe
