// Manifests and indexes of registries and OCI layouts (image-spec manifest.md, image-index.md; Docker's
// schema 2), and the manifest.json of `docker save`. All of it is hostile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "image/decompress.h"

namespace drupe {

/// Most bytes a manifest or index may have: the distribution specification's own bound.
inline constexpr std::size_t kManifestLimit = std::size_t{4} << 20;
/// Most bytes of one layer as it is transferred.
inline constexpr std::uint64_t kLayerLimit = std::uint64_t{20} << 30;

struct Descriptor {
  std::string media_type;
  std::string digest;  ///< SHA-256, 64 hexadecimal digits.
  std::uint64_t size = 0;
  std::string architecture, os, variant;  ///< Of an index's entries; empty otherwise.
  std::string name;  ///< From annotations: io.containerd.image.name, else org.opencontainers.image.ref.name.
};

struct Manifest {
  bool is_index = false;
  std::vector<Descriptor> manifests;  ///< Of an index.
  Descriptor config;                  ///< Of a manifest.
  std::vector<Descriptor> layers;     ///< Lowest first.
};

/// `media_type`: what the transport or the descriptor said; empty when nothing did. It must agree with the
/// content, and a document must not be both index and manifest (CVE-2021-41190).
Result<Manifest> parse_manifest(std::string_view json, std::string_view media_type);

/// The entry of `index` for `platform` ("linux/amd64"); kUnsupported lists what there is.
Result<Descriptor> pick_platform(const Manifest& index, std::string_view platform);

/// kUnsupported unless the manifest describes a root file system in layers that can be read here.
Status check_is_image(const Manifest& manifest);
/// The compression that a layer's media type promises; kUnsupported for types that are not layers, or
/// encrypted.
Result<Compression> layer_compression(std::string_view media_type);

struct SavedImage {
  std::string config;  ///< Member name in the archive.
  std::vector<std::string> names;
  std::vector<std::string> layers;  ///< Member names.
};
/// manifest.json of `docker save`.
Result<std::vector<SavedImage>> parse_saved_manifest(std::string_view json);

}  // namespace drupe
