// The readers of the single clients' configuration; used by presets.cpp, by the engine for the files of
// certificate authorities, and by tests.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "net/policy/presets.h"

namespace drupe::net {

/// "host:port" of an http or https URL, "[v6]:port" for IPv6; nullopt for everything else. User names and
/// passwords are skipped.
[[nodiscard]] std::optional<std::string> server_of_url(std::string_view url);

/// What a client uses. `urls` is what is configured, in any order; `is_default` when nothing is and `urls`
/// holds what the client that is installed on this host uses then, or nothing.
struct ConfiguredUrls {
  std::vector<std::string> urls;
  bool is_default = false;
};
[[nodiscard]] ConfiguredUrls pip_urls(const PresetSource& source);
[[nodiscard]] ConfiguredUrls npm_urls(const PresetSource& source);
[[nodiscard]] ConfiguredUrls apt_urls(const PresetSource& source);

/// Path of the file of certificate authorities that pip (`cert`) and npm (`cafile`) are told to use; empty:
/// none.
[[nodiscard]] std::string pip_authorities(const PresetSource& source);
[[nodiscard]] std::string npm_authorities(const PresetSource& source);

/// From the source of the pip that is installed; empty when none is found.
struct PipDefault {
  std::string index, files;  ///< URLs.
};
[[nodiscard]] PipDefault pip_default(const PresetSource& source);
/// URL of the registry, from the source of the npm that is installed; empty when none is found.
[[nodiscard]] std::string npm_default(const PresetSource& source);

/// Lines without their line ends.
[[nodiscard]] std::vector<std::string_view> lines_of(std::string_view text);
/// Words separated by spaces and tabs.
[[nodiscard]] std::vector<std::string_view> words_of(std::string_view text);
/// The home directory of the environment, or empty.
[[nodiscard]] std::string home_of(const PresetSource& source);

}  // namespace drupe::net
