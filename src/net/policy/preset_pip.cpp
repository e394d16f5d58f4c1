// pip: environment, then configuration files (pip's user guide, "Configuration").
#include <algorithm>

#include "net/policy/preset_clients.h"
#include "net/policy/text.h"

namespace drupe::net {
namespace {

struct Settings {
  std::string index;  ///< The last one read counts.
  std::string cert;
  std::vector<std::string>
      extra;  ///< extra-index-url and find-links; all of them count, so that none is missing.
};

void take_option(Settings& settings, std::string key, std::string_view value) {
  std::ranges::replace(key, '_', '-');
  const auto words = words_of(value);
  if (key == "cert") settings.cert = trimmed(value);
  if (key == "index-url" && !words.empty()) settings.index = words.front();
  if (key == "extra-index-url" || key == "find-links")
    for (const std::string_view word : words) settings.extra.emplace_back(word);
}

/// An ini file; a line that begins with a blank continues the value before it.
void take_file(Settings& settings, std::string_view text) {
  std::string key;
  std::string value;
  const auto finish = [&] {
    if (!key.empty()) take_option(settings, key, value);
    key.clear();
  };
  for (const std::string_view line : lines_of(text)) {
    const std::string_view bare = trimmed(line);
    if (bare.empty() || bare.front() == '#' || bare.front() == ';') continue;
    if (line.front() == ' ' || line.front() == '\t') {
      value += " " + std::string(bare);
      continue;
    }
    finish();
    const std::size_t equals = bare.find_first_of("=:");
    if (bare.front() == '[' || equals == std::string_view::npos) continue;
    key = to_lower(trimmed(bare.substr(0, equals)));
    value = trimmed(bare.substr(equals + 1));
  }
  finish();
}

std::vector<std::string> files_of(const PresetSource& source) {
  std::vector<std::string> files;
  const std::string named = source.variable("PIP_CONFIG_FILE").value_or(std::string());
  if (named == "/dev/null") return files;  // pip's way to say: none
  std::string dirs = source.variable("XDG_CONFIG_DIRS").value_or(std::string());
  if (dirs.empty()) dirs = "/etc/xdg";
  for (std::size_t begin = 0; begin <= dirs.size();) {
    const std::size_t end = std::min(dirs.find(':', begin), dirs.size());
    if (end > begin) files.push_back(dirs.substr(begin, end - begin) + "/pip/pip.conf");
    begin = end + 1;
  }
  files.emplace_back("/etc/pip.conf");
  const std::string home = home_of(source);
  if (!home.empty()) files.push_back(home + "/.pip/pip.conf");
  const std::string config = source.variable("XDG_CONFIG_HOME").value_or(std::string());
  if (!config.empty())
    files.push_back(config + "/pip/pip.conf");
  else if (!home.empty())
    files.push_back(home + "/.config/pip/pip.conf");
  if (const auto site = source.variable("VIRTUAL_ENV"); site && !site->empty())
    files.push_back(*site + "/pip.conf");
  if (!named.empty()) files.push_back(named);
  return files;
}

Settings settings_of(const PresetSource& source) {
  Settings settings;
  for (const std::string& path : files_of(source))
    if (const auto text = source.file(path)) take_file(settings, *text);
  for (const auto& [variable, option] :
       {std::pair("PIP_INDEX_URL", "index-url"), std::pair("PIP_EXTRA_INDEX_URL", "extra-index-url"),
        std::pair("PIP_FIND_LINKS", "find-links"), std::pair("PIP_CERT", "cert")})
    if (const auto value = source.variable(variable)) take_option(settings, option, *value);
  return settings;
}

}  // namespace

std::string pip_authorities(const PresetSource& source) {
  return settings_of(source).cert;
}

ConfiguredUrls pip_urls(const PresetSource& source) {
  Settings settings = settings_of(source);
  ConfiguredUrls found;
  found.is_default = settings.index.empty() && settings.extra.empty();
  const PipDefault standard = pip_default(source);
  if (settings.index.empty()) settings.index = standard.index;
  if (!settings.index.empty()) found.urls.push_back(settings.index);
  found.urls.insert(found.urls.end(), settings.extra.begin(), settings.extra.end());
  const auto public_index = server_of_url(standard.index);
  if (public_index && std::ranges::any_of(found.urls, [&](const std::string& url) {
        return server_of_url(url) == public_index;
      }))
    found.urls.push_back(standard.files);
  return found;
}

}  // namespace drupe::net
