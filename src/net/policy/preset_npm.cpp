// npm: environment, the user's and the global npmrc (npm's documentation, "config" and "npmrc").
#include "net/policy/preset_clients.h"
#include "net/policy/text.h"

namespace drupe::net {
namespace {

struct Settings {
  std::string registry;  ///< The last one read counts.
  std::string cafile;    ///< The same.
  std::vector<std::string> scoped;
};

/// "${NAME}" in a value is that environment variable (npmrc); an unset one stays as it is written.
std::string with_variables(std::string_view value, const PresetSource& source) {
  std::string out;
  while (true) {
    const std::size_t begin = value.find("${");
    const std::size_t end = begin == std::string_view::npos ? begin : value.find('}', begin);
    if (end == std::string_view::npos) return out + std::string(value);
    out += value.substr(0, begin);
    const std::string name(value.substr(begin + 2, end - begin - 2));
    out += source.variable(name).value_or("${" + name + "}");
    value.remove_prefix(end + 1);
  }
}

void take_file(Settings& settings, std::string_view text, const PresetSource& source) {
  for (const std::string_view line : lines_of(text)) {
    const std::string_view bare = trimmed(line);
    const std::size_t equals = bare.find('=');
    if (bare.empty() || bare.front() == '#' || bare.front() == ';' || equals == std::string_view::npos)
      continue;
    const std::string_view key = trimmed(bare.substr(0, equals));
    std::string value = with_variables(trimmed(bare.substr(equals + 1)), source);
    if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'') && value.back() == value.front())
      value = value.substr(1, value.size() - 2);
    if (key == "registry") settings.registry = value;
    if (key == "cafile") settings.cafile = value;
    if (key.starts_with('@') && key.ends_with(":registry")) settings.scoped.push_back(value);
  }
}

std::string variable_of(const PresetSource& source, std::string name) {
  for (const bool upper : {false, true}) {
    if (upper)
      for (char& c : name)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    if (const auto value = source.variable(name); value && !value->empty()) return *value;
  }
  return {};
}

Settings settings_of(const PresetSource& source) {
  Settings settings;
  const std::string global = variable_of(source, "npm_config_globalconfig");
  const std::string prefix = variable_of(source, "npm_config_prefix");
  std::vector<std::string> files;
  if (!global.empty()) {
    files.push_back(global);
  } else if (!prefix.empty()) {
    files.push_back(prefix + "/etc/npmrc");
  } else {
    // npm's prefix is where node stands; these are the usual places on Linux.
    files = {"/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc"};
  }
  const std::string user = variable_of(source, "npm_config_userconfig");
  const std::string home = home_of(source);
  if (!user.empty())
    files.push_back(user);
  else if (!home.empty())
    files.push_back(home + "/.npmrc");
  for (const std::string& path : files)
    if (const auto text = source.file(path)) take_file(settings, *text, source);
  if (const std::string registry = variable_of(source, "npm_config_registry"); !registry.empty())
    settings.registry = registry;
  if (const std::string cafile = variable_of(source, "npm_config_cafile"); !cafile.empty())
    settings.cafile = cafile;
  return settings;
}

}  // namespace

std::string npm_authorities(const PresetSource& source) {
  return settings_of(source).cafile;
}

ConfiguredUrls npm_urls(const PresetSource& source) {
  const Settings settings = settings_of(source);
  ConfiguredUrls found;
  found.is_default = settings.registry.empty() && settings.scoped.empty();
  found.urls.push_back(settings.registry.empty() ? npm_default(source) : settings.registry);
  found.urls.insert(found.urls.end(), settings.scoped.begin(), settings.scoped.end());
  return found;
}

}  // namespace drupe::net
