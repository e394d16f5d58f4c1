// What pip and npm use when nothing is configured, as the programs that are installed on this host have it.
#include "base/npm_default.h"
#include "net/policy/preset_clients.h"

namespace drupe::net {
namespace {

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
    found.index = next_quoted(*text, at);
    // The host on which that index keeps the files that its pages link to.
    if (const std::string files = next_quoted(*text, at); !files.empty())
      found.files = "https://" + files + "/";
    return found;
  }
  return {};
}

std::string npm_default(const PresetSource& source) {
  return npm_default_registry(source.file);
}

}  // namespace drupe::net
