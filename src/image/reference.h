// Names of images as Docker's users write them: [host[:port]/]path[:tag][@sha256:hex].
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace drupe {

/// A checked name. Every part uses only characters that are harmless in paths and URLs.
struct Reference {
  std::string host;    ///< "docker.io", "registry.example.com:5000", "[::1]:5000"; lower case.
  std::string path;    ///< "library/python"; never with empty, "." or ".." components.
  std::string tag;     ///< Empty only with a digest. With a digest it is only a label.
  std::string digest;  ///< 64 hexadecimal digits of the manifest's SHA-256, or empty.

  /// The complete form: "docker.io/library/python:3.12-slim". At most kReferenceLimit bytes.
  [[nodiscard]] std::string canonical() const;
  /// As people write it: without the parts that are understood ("python:3.12-slim").
  [[nodiscard]] std::string familiar() const;
  /// What a registry is asked for: "sha256:..." or the tag.
  [[nodiscard]] std::string selector() const { return digest.empty() ? tag : "sha256:" + digest; }

  bool operator==(const Reference&) const = default;
};

/// Longest canonical name, so that it fits a file name.
inline constexpr std::size_t kReferenceLimit = 240;
inline constexpr std::string_view kDefaultHost = "docker.io";

/// Parses hostile text. Missing parts get Docker's defaults: docker.io, library/, latest. kInvalidArgument
/// says what is wrong with it.
Result<Reference> parse_reference(std::string_view text);

}  // namespace drupe
