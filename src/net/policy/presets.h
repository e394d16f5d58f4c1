// @pip, @npm, @apt: the servers that these clients are configured to use on this host, as rules.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/policy/rule_set.h"

namespace drupe::net {

/// Where configuration is read from; tests give their own. Nothing is written and no program is started.
struct PresetSource {
  /// Value of an environment variable.
  std::function<std::optional<std::string>(const std::string& name)> variable;
  /// Content of a file, at most kLongestPresetFile bytes; nullopt when it cannot be read.
  std::function<std::optional<std::string>(const std::string& path)> file;
  /// Names in a directory, sorted; empty when it cannot be read.
  std::function<std::vector<std::string>(const std::string& path)> directory;
};
inline constexpr std::size_t kLongestPresetFile = std::size_t{1} << 20;

/// This process's environment and files.
[[nodiscard]] PresetSource host_preset_source();

/// Replaces each "@pip", "@npm", "@apt" of a list of rules by rules host:port (ip:port for addresses), with
/// the preset as their origin; others stay as they are, unchecked. kInvalidArgument: an unknown preset.
/// kNotFound: nothing is configured, and the client is not installed here or has no default (apt).
///
/// Read are the environment, the user's and the system's files, never those of the working directory, which
/// may be a stranger's. For a client that has nothing configured the source of the one that is installed says
/// what it uses, and the origin tells: "@pip, pip's default". No host name is built in. Credentials in URLs
/// are dropped; file: and cdrom: sources need no network.
Result<std::vector<RuleText>> expand_presets(const std::vector<std::string>& rules,
                                             const PresetSource& source);

}  // namespace drupe::net
