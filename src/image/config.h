// What an image says about how its programs are run: the config of OCI's image specification and of Docker.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace drupe {

struct ImageConfig {
  std::vector<std::string>
      env;  ///< "KEY=value", each key once (of several the last wins), in order of first mention.
  std::vector<std::string> entrypoint, cmd;
  std::string working_dir;  ///< Empty: "/".
  std::string user;         ///< "", "name", "uid", "name:group", "uid:gid"; resolved in the guest.
  std::string stop_signal;  ///< "SIGTERM", "TERM", "15" or empty.
  std::map<std::string, std::string> labels;
  std::string architecture, os;  ///< As in GOARCH and GOOS: "amd64", "linux".

  bool operator==(const ImageConfig&) const = default;
};

/// A config blob: how to run the image, and which layers it is made of.
struct ImageSpec {
  ImageConfig config;
  std::vector<std::string>
      diff_ids;  ///< SHA-256 of each layer's plain tar, 64 hexadecimal digits, lowest first.
};

/// Most bytes a config blob may have.
inline constexpr std::size_t kConfigLimit = std::size_t{4} << 20;

/// Parses a hostile config blob (image-spec/config.md; application/vnd.docker.container.image.v1+json).
/// kIntegrity when it is not one.
Result<ImageSpec> parse_image_spec(std::string_view json);
/// The canonical JSON of a spec: the same value gives the same bytes.
[[nodiscard]] std::string encode_image_spec(const ImageSpec& spec);

}  // namespace drupe
