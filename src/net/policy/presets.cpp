#include "net/policy/presets.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <fcntl.h>

#include "base/files.h"
#include "net/policy/name.h"
#include "net/policy/preset_clients.h"
#include "net/policy/text.h"

namespace drupe::net {
namespace {

struct Preset {
  std::string_view name;
  std::string_view client;
  ConfiguredUrls (*read)(const PresetSource&);
};
constexpr Preset kPresets[] = {
    {"@pip", "pip", pip_urls}, {"@npm", "npm", npm_urls}, {"@apt", "apt", apt_urls}};

Result<std::vector<RuleText>> expand(const Preset& preset, const PresetSource& source) {
  const ConfiguredUrls configured = preset.read(source);
  std::string origin(preset.name);
  if (configured.is_default) origin += ", " + std::string(preset.client) + "'s default";
  std::vector<RuleText> rules;
  for (const std::string& url : configured.urls) {
    const auto server = server_of_url(url);
    if (!server) continue;
    const RuleText rule{*server, origin};
    if (std::ranges::find(rules, rule) == rules.end()) rules.push_back(rule);
  }
  if (rules.empty())
    return fail(ErrorCode::kNotFound,
                std::string(preset.name) + " names nothing: " + std::string(preset.client) +
                    " is not installed on this host or not configured to use any http or https server",
                "Install or configure it here, or name the servers with rules of their own.");
  return rules;
}

}  // namespace

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return words;
    const std::size_t end = std::min(text.find_first_of(" \t\r\n", begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    text.remove_prefix(end);
  }
}

std::string home_of(const PresetSource& source) {
  return source.variable("HOME").value_or(std::string());
}

std::optional<std::string> server_of_url(std::string_view url) {
  const std::size_t mark = url.find("://");
  if (mark == std::string_view::npos) return std::nullopt;
  const std::string scheme = to_lower(url.substr(0, mark));
  if (scheme != "http" && scheme != "https") return std::nullopt;
  std::string_view authority = url.substr(mark + 3);
  authority = authority.substr(0, authority.find_first_of("/?#"));
  if (const std::size_t at = authority.rfind('@'); at != std::string_view::npos)
    authority.remove_prefix(at + 1);
  const std::size_t bracket = authority.rfind(']');
  const std::size_t colon = authority.rfind(':');
  std::string host(authority);
  std::string port = scheme == "https" ? "443" : "80";
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    host = authority.substr(0, colon);
    if (colon + 1 < authority.size()) port = authority.substr(colon + 1);
  }
  if (const auto name = normal_name(host)) host = *name;
  std::string server = host + ":" + port;
  if (!parse_rule(server) || host.starts_with('*')) return std::nullopt;
  return server;
}

Result<std::vector<RuleText>> expand_presets(const std::vector<std::string>& rules,
                                             const PresetSource& source) {
  std::vector<RuleText> out;
  for (const std::string& text : rules) {
    if (!text.starts_with('@')) {
      out.push_back({text, {}});
      continue;
    }
    const auto* preset = std::ranges::find(kPresets, text, &Preset::name);
    if (preset == std::end(kPresets))
      return fail(ErrorCode::kInvalidArgument, "There is no preset " + shown(text),
                  "Presets are @pip, @npm and @apt.");
    DRUPE_ASSIGN(const auto expanded, expand(*preset, source));
    out.insert(out.end(), expanded.begin(), expanded.end());
  }
  return out;
}

PresetSource host_preset_source() {
  PresetSource source;
  source.variable = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  source.file = [](const std::string& path) -> std::optional<std::string> {
    auto content = read_file(AT_FDCWD, path, kLongestPresetFile);
    if (!content) return std::nullopt;
    return *std::move(content);
  };
  source.directory = [](const std::string& path) {
    std::vector<std::string> names;
    std::error_code failed;
    for (auto entry = std::filesystem::directory_iterator(path, failed);
         !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed))
      names.push_back(entry->path().filename().string());
    std::ranges::sort(names);
    return names;
  };
  return source;
}

}  // namespace drupe::net
