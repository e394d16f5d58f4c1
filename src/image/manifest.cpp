#include "image/manifest.h"

#include <nlohmann/json.hpp>

#include "image/config.h"
#include "image/digest.h"
#include "image/text.h"

namespace drupe {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxEntries = 4096;

constexpr std::string_view kOciIndex = "application/vnd.oci.image.index.v1+json";
constexpr std::string_view kOciManifest = "application/vnd.oci.image.manifest.v1+json";
constexpr std::string_view kDockerIndex = "application/vnd.docker.distribution.manifest.list.v2+json";
constexpr std::string_view kDockerManifest = "application/vnd.docker.distribution.manifest.v2+json";
constexpr std::string_view kOciConfig = "application/vnd.oci.image.config.v1+json";
constexpr std::string_view kDockerConfig = "application/vnd.docker.container.image.v1+json";

enum class Kind : std::uint8_t { kUnknown, kIndex, kManifest, kOld };

Kind kind_of(std::string_view media_type) {
  if (media_type == kOciIndex || media_type == kDockerIndex) return Kind::kIndex;
  if (media_type == kOciManifest || media_type == kDockerManifest) return Kind::kManifest;
  if (media_type.starts_with("application/vnd.docker.distribution.manifest.v1+")) return Kind::kOld;
  return Kind::kUnknown;
}

std::unexpected<Error> bad(std::string_view what) {
  return fail(ErrorCode::kIntegrity, "The image's manifest is not usable: " + std::string(what));
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<Descriptor> read_descriptor(const Json& json) {
  if (!json.is_object()) return bad("a descriptor is not an object");
  Descriptor descriptor;
  descriptor.media_type = text_of(json, "mediaType");
  DRUPE_ASSIGN(descriptor.digest, parse_digest(text_of(json, "digest")));
  const auto size = json.find("size");
  if (size == json.end() || !size->is_number_unsigned()) return bad("a descriptor has no size");
  descriptor.size = size->get<std::uint64_t>();
  if (const auto platform = json.find("platform"); platform != json.end() && platform->is_object()) {
    descriptor.architecture = text_of(*platform, "architecture");
    descriptor.os = text_of(*platform, "os");
    descriptor.variant = text_of(*platform, "variant");
  }
  if (const auto notes = json.find("annotations"); notes != json.end() && notes->is_object()) {
    descriptor.name = text_of(*notes, "io.containerd.image.name");
    if (descriptor.name.empty()) descriptor.name = text_of(*notes, "org.opencontainers.image.ref.name");
  }
  return descriptor;
}

Result<std::vector<Descriptor>> read_descriptors(const Json& list) {
  if (!list.is_array()) return bad("a list of descriptors is missing");
  if (list.size() > kMaxEntries) return bad("it has more than " + std::to_string(kMaxEntries) + " entries");
  std::vector<Descriptor> out;
  for (const Json& item : list) {
    DRUPE_ASSIGN(auto descriptor, read_descriptor(item));
    out.push_back(std::move(descriptor));
  }
  return out;
}

/// What the content is, where all that speak about it agree.
Result<Kind> agree(const Json& json, std::string_view outer) {
  const Kind told = kind_of(outer);
  const Kind inner = kind_of(text_of(json, "mediaType"));
  const auto version = json.find("schemaVersion");
  const bool old = version != json.end() && *version == 1;
  if (told == Kind::kOld || inner == Kind::kOld || old)
    return fail(ErrorCode::kUnsupported, "The registry has this image only in Docker's old format (schema 1)",
                "Push it again with a current tool, or use another tag.");
  const bool index = json.contains("manifests");
  const bool manifest = json.contains("layers") || json.contains("config");
  if (index == manifest)
    return bad(index ? "it claims to be an index and a manifest at once"
                     : "it lists neither layers nor manifests");
  const Kind content = index ? Kind::kIndex : Kind::kManifest;
  for (const Kind other : {told, inner})
    if (other != Kind::kUnknown && other != content) return bad("its media type does not fit its content");
  return content;
}

}  // namespace

Result<Manifest> parse_manifest(std::string_view text, std::string_view media_type) {
  if (text.size() > kManifestLimit)
    return fail(ErrorCode::kLimit,
                "The image's manifest is larger than " + std::to_string(kManifestLimit >> 20) + " MiB");
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return bad("it is not a JSON object");
  DRUPE_ASSIGN(const Kind kind, agree(json, media_type));
  Manifest manifest;
  if (kind == Kind::kIndex) {
    manifest.is_index = true;
    DRUPE_ASSIGN(manifest.manifests, read_descriptors(json["manifests"]));
    return manifest;
  }
  if (!json.contains("config") || !json.contains("layers")) return bad("it lists no config or no layers");
  DRUPE_ASSIGN(manifest.config, read_descriptor(json["config"]));
  DRUPE_ASSIGN(manifest.layers, read_descriptors(json["layers"]));
  return manifest;
}

Result<Descriptor> pick_platform(const Manifest& index, std::string_view platform) {
  const std::size_t slash = platform.find('/');
  const std::string_view os = platform.substr(0, slash);
  const std::string_view architecture =
      slash == std::string_view::npos ? std::string_view() : platform.substr(slash + 1);
  std::string offered;
  for (const Descriptor& entry : index.manifests) {
    if (entry.os == os && entry.architecture == architecture) return entry;
    // Attestations are listed as unknown/unknown.
    if (entry.os.empty() || entry.os == "unknown") continue;
    offered += (offered.empty() ? "" : ", ") + shown(entry.os + "/" + entry.architecture);
    if (offered.size() > 300) break;
  }
  // An index of one image that does not say what it is for: the config will tell.
  if (index.manifests.size() == 1 && index.manifests[0].os.empty()) return index.manifests[0];
  return fail(ErrorCode::kUnsupported, "The image is not made for " + std::string(platform) +
                                           (offered.empty() ? "" : "; it is made for " + offered));
}

Status check_is_image(const Manifest& manifest) {
  const std::string& type = manifest.config.media_type;
  if (type != kOciConfig && type != kDockerConfig)
    return fail(ErrorCode::kUnsupported,
                "This is not an image of a root file system but an artifact of type " + shown(type));
  if (manifest.config.size > kConfigLimit)
    return fail(ErrorCode::kLimit,
                "The image's config is larger than " + std::to_string(kConfigLimit >> 20) + " MiB");
  for (const Descriptor& layer : manifest.layers) {
    DRUPE_ASSIGN([[maybe_unused]] const Compression compression, layer_compression(layer.media_type));
    if (layer.size > kLayerLimit)
      return fail(ErrorCode::kLimit,
                  "A layer of the image is larger than " + std::to_string(kLayerLimit >> 30) + " GiB");
  }
  return {};
}

Result<Compression> layer_compression(std::string_view type) {
  for (const std::string_view prefix :
       {"application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.nondistributable.v1.tar",
        "application/vnd.docker.image.rootfs.diff.tar",
        "application/vnd.docker.image.rootfs.foreign.diff.tar"}) {
    if (!type.starts_with(prefix)) continue;
    const std::string_view suffix = type.substr(prefix.size());
    if (suffix.empty()) return Compression::kNone;
    if (suffix == "+gzip" || suffix == ".gzip") return Compression::kGzip;
    if (suffix == "+zstd" || suffix == ".zstd") return Compression::kZstd;
  }
  return fail(ErrorCode::kUnsupported,
              "The image has a layer of the type " + shown(type) + ", which cannot be read here");
}

Result<std::vector<SavedImage>> parse_saved_manifest(std::string_view text) {
  if (text.size() > kManifestLimit)
    return fail(ErrorCode::kLimit, "The archive's manifest.json is too large");
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_array() || json.empty() || json.size() > kMaxEntries)
    return fail(ErrorCode::kIntegrity, "The archive's manifest.json does not list images");
  const auto texts = [](const Json& object, const char* key) {
    std::vector<std::string> out;
    const auto found = object.find(key);
    if (found != object.end() && found->is_array())
      for (const Json& item : *found)
        if (item.is_string()) out.push_back(item.get<std::string>());
    return out;
  };
  std::vector<SavedImage> images;
  for (const Json& item : json) {
    if (!item.is_object())
      return fail(ErrorCode::kIntegrity, "The archive's manifest.json does not list images");
    SavedImage image{text_of(item, "Config"), texts(item, "RepoTags"), texts(item, "Layers")};
    if (image.config.empty())
      return fail(ErrorCode::kIntegrity, "The archive's manifest.json lists an image without a config");
    images.push_back(std::move(image));
  }
  return images;
}

}  // namespace drupe
