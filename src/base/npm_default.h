// What the npm that is installed on this host fetches from when nothing is configured.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace drupe {

/// URL of the registry, as npm's own source names it; empty when no npm is found. `file` gives the content of
/// a file, or nothing when it cannot be read. No host name is built in here.
[[nodiscard]] std::string npm_default_registry(
    const std::function<std::optional<std::string>(const std::string& path)>& file);

/// The first text in quotes of any kind at or after `at`, which moves behind it; empty when there is none.
[[nodiscard]] std::string next_quoted(std::string_view text, std::size_t& at);

}  // namespace drupe
