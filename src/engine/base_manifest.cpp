#include <nlohmann/json.hpp>

#include "engine/base_snapshot.h"
#include "image/digest.h"
#include "image/disk.h"

namespace drupe {
namespace {

using Json = nlohmann::json;

Error damaged(std::string_view what) {
  return fail(ErrorCode::kIntegrity, "The manifest of a base snapshot is damaged: " + std::string(what))
      .error();
}

template <class T>
bool read_number(const Json& object, const char* name, T& value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_integer()) return false;
  value = found->get<T>();
  return true;
}

bool read_text(const Json& object, const char* name, std::string& value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return false;
  value = found->get<std::string>();
  return true;
}

}  // namespace

std::string encode_manifest(const BaseManifest& manifest) {
  Json json;
  json["format"] = manifest.format;
  json["key"] = manifest.key;
  json["image_id"] = manifest.image_id;
  json["kernel_digest"] = manifest.kernel_digest;
  json["state_key"] = manifest.state_key;
  json["tsc_khz"] = manifest.tsc_khz;
  json["epoch"] = manifest.epoch;
  json["disk_bytes"] = manifest.disk_bytes;
  json["created_ns"] = manifest.created_ns;
  json["vcpus"] = manifest.shape.vcpus;
  json["memory_mib"] = manifest.shape.memory_mib;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<BaseManifest> decode_manifest(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::unexpected(damaged("not a JSON object"));
  BaseManifest manifest;
  const bool good =
      read_number(json, "format", manifest.format) && read_text(json, "key", manifest.key) &&
      read_text(json, "image_id", manifest.image_id) &&
      read_text(json, "kernel_digest", manifest.kernel_digest) &&
      read_text(json, "state_key", manifest.state_key) && read_number(json, "tsc_khz", manifest.tsc_khz) &&
      read_number(json, "epoch", manifest.epoch) && read_number(json, "disk_bytes", manifest.disk_bytes) &&
      read_number(json, "created_ns", manifest.created_ns) &&
      read_number(json, "vcpus", manifest.shape.vcpus) &&
      read_number(json, "memory_mib", manifest.shape.memory_mib);
  if (!good) return std::unexpected(damaged("a member is missing"));
  if (manifest.format != kBaseFormat) return std::unexpected(damaged("another format"));
  if (!is_sha256_hex(manifest.kernel_digest)) return std::unexpected(damaged("the kernel's digest"));
  return manifest;
}

std::string base_key(const BaseRecipe& recipe, const GuestAssets& assets, const HypervisorInfo& hypervisor) {
  std::string text = "drupe base " + std::to_string(kBaseFormat) + "\n";
  for (const std::string& part :
       {recipe.image_id, std::to_string(kDiskWriterVersion), assets.digest, hypervisor.name,
        hypervisor.state_key, std::to_string(static_cast<int>(hypervisor.accelerator)),
        std::to_string(recipe.shape.vcpus), std::to_string(recipe.shape.memory_mib)})
    text += std::to_string(part.size()) + ":" + part + "\n";
  return sha256_hex(text).substr(0, 40);
}

}  // namespace drupe
