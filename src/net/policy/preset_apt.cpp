// apt: sources.list and sources.list.d, both formats of sources.list(5).
#include <algorithm>

#include "net/policy/preset_clients.h"
#include "net/policy/text.h"

namespace drupe::net {
namespace {

/// "mirror+https://host/list" and "tor+http://..." name a method of their own before the URL's scheme.
std::string plain_url(std::string_view url) {
  const std::size_t mark = url.find("://");
  const std::size_t plus = url.substr(0, std::min(mark, url.size())).find('+');
  if (plus != std::string_view::npos) url.remove_prefix(plus + 1);
  if (url.starts_with("mirror://")) return "http" + std::string(url.substr(6));
  return std::string(url);
}

/// deb [option=value ...] URL suite [component ...]
void take_lines(std::vector<std::string>& urls, std::string_view text) {
  for (std::string_view line : lines_of(text)) {
    line = line.substr(0, line.find('#'));
    std::string_view rest = trimmed(line);
    if (!rest.starts_with("deb ") && !rest.starts_with("deb\t") && !rest.starts_with("deb-src ") &&
        !rest.starts_with("deb-src\t"))
      continue;
    rest = trimmed(rest.substr(rest.find_first_of(" \t")));
    if (rest.starts_with('[')) {
      const std::size_t close = rest.find(']');
      if (close == std::string_view::npos) continue;
      rest.remove_prefix(close + 1);
    }
    if (const auto words = words_of(rest); !words.empty()) urls.push_back(plain_url(words.front()));
  }
}

/// Stanzas of fields (deb822); a line that begins with a blank continues the field before it.
void take_stanzas(std::vector<std::string>& urls, std::string_view text) {
  std::vector<std::string> found;
  bool enabled = true;
  std::string field;
  const auto finish = [&] {
    if (enabled) urls.insert(urls.end(), found.begin(), found.end());
    found.clear();
    enabled = true;
    field.clear();
  };
  for (const std::string_view line : lines_of(text)) {
    if (line.starts_with('#')) continue;
    std::string_view value = trimmed(line);
    if (value.empty()) {
      finish();
      continue;
    }
    if (line.front() != ' ' && line.front() != '\t') {
      const std::size_t colon = value.find(':');
      if (colon == std::string_view::npos) continue;
      field = to_lower(trimmed(value.substr(0, colon)));
      value.remove_prefix(colon + 1);
    }
    if (field == "uris")
      for (const std::string_view word : words_of(value)) found.push_back(plain_url(word));
    // apt's words for false: no, false, without, off, disable.
    if (field == "enabled") {
      const std::string word = to_lower(trimmed(value));
      enabled = word != "no" && word != "false" && word != "without" && word != "off" && word != "disable" &&
                word != "0";
    }
  }
  finish();
}

}  // namespace

ConfiguredUrls apt_urls(const PresetSource& source) {
  const std::string etc = "/etc/apt/";
  ConfiguredUrls found;
  if (const auto text = source.file(etc + "sources.list")) take_lines(found.urls, *text);
  for (const std::string& name : source.directory(etc + "sources.list.d")) {
    const bool stanzas = name.ends_with(".sources");
    if (!stanzas && !name.ends_with(".list")) continue;
    std::string path = etc + "sources.list.d/";
    path += name;
    const auto text = source.file(path);
    if (!text) continue;
    if (stanzas)
      take_stanzas(found.urls, *text);
    else
      take_lines(found.urls, *text);
  }
  return found;
}

}  // namespace drupe::net
