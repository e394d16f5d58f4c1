// Configuration files of pip, npm and apt: whatever they hold, what comes out are rules.
#include <cstdlib>

#include "base/bytes.h"
#include "net/policy/presets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace drupe;
  using namespace drupe::net;
  const std::string text(as_text({data, size}));
  PresetSource source;
  source.variable = [](const std::string& name) -> std::optional<std::string> {
    return name == "HOME" ? std::optional<std::string>("/home/u") : std::nullopt;
  };
  source.file = [&](const std::string&) { return std::optional(text); };
  source.directory = [](const std::string&) { return std::vector<std::string>{"a.list", "b.sources"}; };
  for (const char* preset : {"@pip", "@npm", "@apt"}) {
    const auto rules = expand_presets({preset}, source);
    if (rules && !RuleSet::compile(*rules)) std::abort();
  }
  return 0;
}
