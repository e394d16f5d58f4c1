#include <set>

#include <fcntl.h>
#include <sys/stat.h>

#include "engine/base_snapshot.h"
#include "engine/file_lock.h"

namespace drupe {
namespace {

std::uint64_t disk_use(const Home& home, const std::string& directory) {
  const auto names = home.names_in(directory);
  if (!names) return 0;
  std::uint64_t bytes = 0;
  for (const std::string& name : *names) {
    struct stat found{};
    const std::string path = directory + "/" + name;
    // Only what no sandbox links any more comes free.
    if (::fstatat(home.dir(), path.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 && found.st_nlink == 1)
      bytes += static_cast<std::uint64_t>(found.st_blocks) * 512;
  }
  return bytes;
}

bool unused_since(const Home& home, const std::string& path, std::chrono::seconds unused_for) {
  struct stat found{};
  if (::fstatat(home.dir(), path.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) return true;
  return ::time(nullptr) - found.st_mtime >= unused_for.count();
}

Result<bool> is_wanted(const Home& home, const Host& host, const std::string& key,
                       std::chrono::seconds unused_for, std::set<std::string>& kernels) {
  const std::string manifest_path = Home::base(key) + "/" + kManifestFile;
  const auto text = read_file(home.dir(), manifest_path, 65536);
  if (!text) return false;
  const auto manifest = decode_manifest(*text);
  if (!manifest || manifest->state_key != host.hypervisor.state_key ||
      unused_since(home, manifest_path, unused_for))
    return false;
  kernels.insert(manifest->kernel_digest);
  return true;
}

}  // namespace

Result<PruneReport> prune_bases(const Home& home, const Host& host, const GuestAssets& assets,
                                std::chrono::seconds unused_for, Prune what) {
  PruneReport pruned;
  std::set<std::string> kernels = {assets.digest};
  DRUPE_ASSIGN(const auto keys, home.names_in("bases"));
  for (const std::string& key : keys) {
    DRUPE_ASSIGN(const bool wanted, is_wanted(home, host, key, unused_for, kernels));
    if (wanted) continue;
    // One that is being made or remade at this moment is somebody's.
    DRUPE_ASSIGN(const UniqueFd lock, try_lock(home.dir(), "locks/base-" + key));
    if (!lock.valid()) continue;
    pruned.bytes += disk_use(home, Home::base(key));
    if (what == Prune::kRemove) DRUPE_TRY(home.discard(Home::base(key)));
    ++pruned.bases;
  }
  DRUPE_ASSIGN(const auto digests, home.names_in("kernels"));
  for (const std::string& digest : digests) {
    if (kernels.contains(digest)) continue;
    pruned.bytes += disk_use(home, "kernels/" + digest);
    if (what == Prune::kRemove) DRUPE_TRY(home.discard("kernels/" + digest));
    ++pruned.kernels;
  }
  return pruned;
}

}  // namespace drupe
