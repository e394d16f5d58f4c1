#include "image/config.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "image/digest.h"

namespace drupe {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxLayers = 1024;

std::unexpected<Error> bad(std::string_view key) {
  return fail(ErrorCode::kIntegrity,
              "The image's config is not usable: '" + std::string(key) + "' is missing or of the wrong kind");
}

/// The member `key` of `object`, or null.
const Json& member(const Json& object, const char* key) {
  static const Json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

Status read_text(const Json& object, const char* key, std::string& into) {
  const Json& value = member(object, key);
  if (value.is_null()) return {};
  if (!value.is_string()) return bad(key);
  into = value.get_ref<const std::string&>();
  // The guest's interfaces end texts at a NUL, so what was checked here would not be what is used there.
  if (into.find('\0') != std::string::npos) return bad(key);
  return {};
}

Status read_texts(const Json& object, const char* key, std::vector<std::string>& into) {
  const Json& value = member(object, key);
  if (value.is_null()) return {};
  if (!value.is_array()) return bad(key);
  for (const Json& item : value) {
    if (!item.is_string()) return bad(key);
    into.push_back(item.get<std::string>());
    if (into.back().find('\0') != std::string::npos) return bad(key);
  }
  return {};
}

/// Keeps the last value of each key; entries without a key or value mean nothing in an image.
std::vector<std::string> merge_env(const std::vector<std::string>& entries) {
  std::vector<std::string> merged;
  std::map<std::string, std::size_t, std::less<>> places;
  for (const std::string& entry : entries) {
    const std::size_t equals = entry.find('=');
    if (equals == 0 || equals == std::string::npos) continue;
    const auto [place, added] = places.emplace(entry.substr(0, equals), merged.size());
    if (added)
      merged.push_back(entry);
    else
      merged[place->second] = entry;
  }
  return merged;
}

Status read_config(const Json& json, ImageConfig& config) {
  const Json& inner = member(json, "config");
  if (!inner.is_null() && !inner.is_object()) return bad("config");
  DRUPE_TRY(read_text(json, "architecture", config.architecture));
  DRUPE_TRY(read_text(json, "os", config.os));
  if (inner.is_null()) return {};
  std::vector<std::string> env;
  DRUPE_TRY(read_texts(inner, "Env", env));
  config.env = merge_env(env);
  DRUPE_TRY(read_texts(inner, "Entrypoint", config.entrypoint));
  DRUPE_TRY(read_texts(inner, "Cmd", config.cmd));
  DRUPE_TRY(read_text(inner, "WorkingDir", config.working_dir));
  DRUPE_TRY(read_text(inner, "User", config.user));
  DRUPE_TRY(read_text(inner, "StopSignal", config.stop_signal));
  if (!config.working_dir.empty() && config.working_dir.front() != '/') config.working_dir.insert(0, "/");
  const Json& labels = member(inner, "Labels");
  if (labels.is_null()) return {};
  if (!labels.is_object()) return bad("Labels");
  for (const auto& [key, value] : labels.items()) {
    if (!value.is_string()) return bad("Labels");
    config.labels.emplace(key, value.get<std::string>());
  }
  return {};
}

}  // namespace

Result<ImageSpec> parse_image_spec(std::string_view text) {
  if (text.size() > kConfigLimit)
    return fail(ErrorCode::kLimit,
                "The image's config is larger than " + std::to_string(kConfigLimit >> 20) + " MiB");
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return fail(ErrorCode::kIntegrity, "The image's config is not a JSON object");
  ImageSpec spec;
  DRUPE_TRY(read_config(json, spec.config));
  const Json& rootfs = member(json, "rootfs");
  if (!rootfs.is_object()) return bad("rootfs");
  std::vector<std::string> digests;
  DRUPE_TRY(read_texts(rootfs, "diff_ids", digests));
  if (digests.size() > kMaxLayers)
    return fail(ErrorCode::kLimit, "The image has more than " + std::to_string(kMaxLayers) + " layers");
  for (const std::string& digest : digests) {
    DRUPE_ASSIGN(auto hex, parse_digest(digest));
    spec.diff_ids.push_back(std::move(hex));
  }
  return spec;
}

std::string encode_image_spec(const ImageSpec& spec) {
  const ImageConfig& config = spec.config;
  Json inner = Json::object();
  inner["Env"] = config.env;
  if (!config.entrypoint.empty()) inner["Entrypoint"] = config.entrypoint;
  if (!config.cmd.empty()) inner["Cmd"] = config.cmd;
  if (!config.working_dir.empty()) inner["WorkingDir"] = config.working_dir;
  if (!config.user.empty()) inner["User"] = config.user;
  if (!config.stop_signal.empty()) inner["StopSignal"] = config.stop_signal;
  if (!config.labels.empty()) inner["Labels"] = config.labels;
  Json diff_ids = Json::array();
  for (const std::string& hex : spec.diff_ids) diff_ids.push_back("sha256:" + hex);
  const Json json = {{"architecture", config.architecture},
                     {"os", config.os},
                     {"config", std::move(inner)},
                     {"rootfs", {{"type", "layers"}, {"diff_ids", std::move(diff_ids)}}}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace drupe
