// image.json: what the store knows about an image besides its disk.
#include <nlohmann/json.hpp>

#include "image/digest.h"
#include "image/disk.h"
#include "image/store_files.h"

namespace drupe {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

}  // namespace

std::string encode_image_record(const Image& image) {
  const Json json = {{"version", kVersion},
                     {"id", image.id},
                     {"manifest_digest", image.manifest_digest},
                     {"created", image.created},
                     {"disk_bytes", image.disk_bytes},
                     {"virtual_bytes", image.virtual_bytes},
                     {"disk_writer", kDiskWriterVersion},
                     {"spec", Json::parse(encode_image_spec({image.config, image.diff_ids}))}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Image> decode_image_record(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  const auto is = [&json](const char* key, Json::value_t type) {
    const auto found = json.find(key);
    return found != json.end() &&
           (found->type() == type || (type == Json::value_t::number_integer && found->is_number_integer()));
  };
  using Type = Json::value_t;
  if (!json.is_object() || !is("id", Type::string) || !is("manifest_digest", Type::string) ||
      !is("created", Type::number_integer) || !is("disk_bytes", Type::number_unsigned) ||
      !is("virtual_bytes", Type::number_unsigned) || !is("spec", Type::object) ||
      json.value("version", 0) != kVersion)
    return fail(ErrorCode::kIntegrity, "The record of the image is damaged",
                "Remove the image (drupe rmi) and fetch it again.");
  DRUPE_ASSIGN(ImageSpec spec, parse_image_spec(json["spec"].dump()));
  Image image;
  image.id = json["id"];
  image.manifest_digest = json["manifest_digest"];
  image.created = json["created"];
  image.disk_bytes = json["disk_bytes"];
  image.virtual_bytes = json["virtual_bytes"];
  image.config = std::move(spec.config);
  image.diff_ids = std::move(spec.diff_ids);
  return image;
}

}  // namespace drupe
