#include "base/npm_default.h"

#include <algorithm>

namespace drupe {

std::string next_quoted(std::string_view text, std::size_t& at) {
  const std::size_t begin = text.find_first_of("'\"`", std::min(at, text.size()));
  const std::size_t end = begin == std::string_view::npos ? begin : text.find(text[begin], begin + 1);
  if (end == std::string_view::npos) return {};
  at = end + 1;
  return std::string(text.substr(begin + 1, end - begin - 1));
}

std::string npm_default_registry(
    const std::function<std::optional<std::string>(const std::string& path)>& file) {
  for (const char* directory :
       {"/usr/local/lib/node_modules/npm", "/usr/lib/node_modules/npm", "/usr/share/nodejs/npm"})
    for (const char* name : {"/node_modules/@npmcli/config/lib/definitions/definitions.js",
                             "/lib/utils/config/definitions.js"}) {
      const auto text = file(std::string(directory) + name);
      if (!text) continue;
      const std::size_t setting = text->find("'registry', {");
      std::size_t at = setting == std::string::npos ? setting : text->find("default:", setting);
      if (at != std::string::npos) return next_quoted(*text, at);
    }
  return {};
}

}  // namespace drupe
