// What pip and npm use when nothing is configured, as the programs that are installed on this host have it.
#include <algorithm>

#include "net/policy/preset_clients.h"

namespace drupe::net {
namespace {

/// The first text in quotes of any kind at or after `at`; `at` moves behind it.
std::string quoted(std::string_view text, std::size_t& at) {
  const std::size_t begin = text.find_first_of("'\"`", std::min(at, text.size()));
  const std::size_t end = begin == std::string_view::npos ? begin : text.find(text[begin], begin + 1);
  if (end == std::string_view::npos) return {};
  at = end + 1;
  return std::string(text.substr(begin + 1, end - begin - 1));
}

/// Directories in which a Python keeps its packages, the user's own first.
std::vector<std::string> python_packages(const PresetSource& source) {
  std::vector<std::string> roots;
  if (const auto site = source.variable("VIRTUAL_ENV"); site && !site->empty())
    roots.push_back(*site + "/lib");
  if (const std::string home = home_of(source); !home.empty()) roots.push_back(home + "/.local/lib");
  roots.insert(roots.end(), {"/usr/local/lib", "/usr/lib"});
  std::vector<std::string> found;
  for (const std::string& root : roots)
    for (const std::string& name : source.directory(root))
      if (name.starts_with("python3"))
        for (const char* kind : {"/site-packages", "/dist-packages"})
          found.push_back(root + "/" + name + kind);
  return found;
}

}  // namespace

PipDefault pip_default(const PresetSource& source) {
  for (const std::string& packages : python_packages(source)) {
    const auto text = source.file(packages + "/pip/_internal/models/index.py");
    if (!text) continue;
    std::size_t at = text->find("\nPyPI = PackageIndex(");
    if (at == std::string::npos) continue;
    PipDefault found;
    found.index = quoted(*text, at);
    // The host on which that index keeps the files that its pages link to.
    if (const std::string files = quoted(*text, at); !files.empty()) found.files = "https://" + files + "/";
    return found;
  }
  return {};
}

std::string npm_default(const PresetSource& source) {
  for (const char* directory :
       {"/usr/local/lib/node_modules/npm", "/usr/lib/node_modules/npm", "/usr/share/nodejs/npm"})
    for (const char* file : {"/node_modules/@npmcli/config/lib/definitions/definitions.js",
                             "/lib/utils/config/definitions.js"}) {
      const auto text = source.file(std::string(directory) + file);
      if (!text) continue;
      const std::size_t setting = text->find("'registry', {");
      std::size_t at = setting == std::string::npos ? setting : text->find("default:", setting);
      if (at != std::string::npos) return quoted(*text, at);
    }
  return {};
}

}  // namespace drupe::net
