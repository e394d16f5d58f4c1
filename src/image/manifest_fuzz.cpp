// JSON of registries, archives and the store. The first byte chooses the reader.
#include <cstdlib>

#include "base/bytes.h"
#include "image/config.h"
#include "image/digest.h"
#include "image/manifest.h"
#include "image/store_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text = drupe::as_text({data + 1, size - 1});
  switch (data[0] % 4) {
    case 0: {
      const auto manifest = drupe::parse_manifest(text, "");
      if (!manifest) break;
      for (const auto& layer : manifest->layers)
        if (!drupe::is_sha256_hex(layer.digest)) std::abort();
      static_cast<void>(drupe::pick_platform(*manifest, "linux/amd64"));
      static_cast<void>(drupe::check_is_image(*manifest));
      break;
    }
    case 1: {
      const auto spec = drupe::parse_image_spec(text);
      if (!spec) break;
      const auto again = drupe::parse_image_spec(drupe::encode_image_spec(*spec));
      if (!again || again->config != spec->config || again->diff_ids != spec->diff_ids) std::abort();
      break;
    }
    case 2:
      static_cast<void>(drupe::parse_saved_manifest(text));
      break;
    default:
      static_cast<void>(drupe::decode_image_record(text));
      break;
  }
  return 0;
}
