// What the host says about where packages come from and how it may build images.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace drupe {

struct DebianMirror {
  std::string archive;   ///< "http://mirror.example/debian"
  std::string security;  ///< "http://mirror.example/debian-security"; empty: none is known.
};

/// Finds the mirror in apt sources, one-line or deb822 form: the first URIs whose paths end with "/debian"
/// and
/// "/debian-security". Empty fields where there is none.
[[nodiscard]] DebianMirror find_mirror(std::string_view sources);
/// $DRUPE_DEBIAN_MIRROR (with $DRUPE_DEBIAN_SECURITY_MIRROR), else what the host's own apt uses. kNotFound
/// when it uses none of Debian's.
Result<DebianMirror> host_mirror();
/// Lines for sources.list: the suite, its updates and its security updates.
[[nodiscard]] std::vector<std::string> source_lines(const DebianMirror& mirror, const std::string& suite);

/// $DRUPE_NPM_REGISTRY, else what npm itself would use: $npm_config_registry, .npmrc of the user and of the
/// system, the default of the npm that is installed. Without a '/' at the end. kNotFound: none of these.
Result<std::string> npm_registry();

/// Says whether `subids`, the content of /etc/subuid or /etc/subgid, gives `user` (or the number `uid`) at
/// least 65536 ids, which is what a file system with all of Debian's owners needs.
[[nodiscard]] bool has_subordinate_ids(std::string_view subids, std::string_view user, std::uint32_t uid);
/// mmdebstrap's mode for this process: "root", or "unshare" where the user has subordinate ids. kPermission
/// with the command that gives them, kNotFound with the package when a program is missing.
Result<std::string> build_mode();

}  // namespace drupe
