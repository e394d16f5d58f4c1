// npm in one layer: the package that the npm registry has of npm itself holds everything it needs.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "image/progress.h"

namespace drupe {

/// Fetches the npm package of `version` from `registry`. kIntegrity when its SHA-512 is not `integrity`
/// ("sha512-<base64>", as the registry and lock files write it).
Result<std::string> fetch_npm(const std::string& registry, const std::string& version,
                              const std::string& integrity, CancelFlag cancel);

/// The entries of a layer, without the end mark, that install the gzipped package `tgz`: its files below
/// usr/lib/node_modules/npm, and npm and npx in usr/bin.
Result<std::string> npm_layer(std::string_view tgz);

/// True if `integrity` is that of `bytes`.
[[nodiscard]] bool has_integrity(std::string_view bytes, std::string_view integrity);

}  // namespace drupe
