#include "engine/image_bases.h"

#include "base/files.h"
#include "engine/base_snapshot.h"
#include "engine/file_lock.h"

namespace drupe {
namespace {

constexpr std::size_t kMostManifest = 65536;

}  // namespace

Status remove_bases_of(const Home& home, const std::string& image_id) {
  DRUPE_ASSIGN(const auto keys, home.names_in("bases"));
  for (const std::string& key : keys) {
    const auto text = read_file(home.dir(), Home::base(key) + "/" + kManifestFile, kMostManifest);
    if (!text) continue;
    const auto manifest = decode_manifest(*text);
    if (!manifest || manifest->image_id != image_id) continue;
    DRUPE_ASSIGN(const UniqueFd lock, try_lock(home.dir(), "locks/base-" + key));
    if (lock.valid()) DRUPE_TRY(home.discard(Home::base(key)));
  }
  return {};
}

}  // namespace drupe
