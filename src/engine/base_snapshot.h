// Base snapshots: the saved machine of one image and shape, booted once, from which every later sandbox
// continues.
//
// bases/<key>/ holds `ram` (sparse, offsets are RAM offsets), `state` (device state), `disk.qcow2` (what the
// boot wrote, over the image) and manifest.json. It is made in tmp/, flushed and renamed into place, and
// never written again. Sandboxes hold hard links, so removing one harms nobody.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "engine/guest_assets.h"
#include "engine/host.h"
#include "engine/prune.h"
#include "shim/record.h"
#include "shim/spec.h"

namespace drupe {

/// Raised when what a base snapshot holds changes its meaning: other exercises, other files.
inline constexpr int kBaseFormat = 1;
inline constexpr const char* kManifestFile = "manifest.json";

/// What a base snapshot is made of.
struct BaseRecipe {
  std::string image_id;
  std::string image_disk;  ///< Path of the image's ext4 file.
  std::vector<std::string> env;
  std::string user, cwd;  ///< Of the image, for the exercises.
  MachineShape shape;
};

struct BaseManifest {
  int format = kBaseFormat;
  std::string key, image_id, kernel_digest, state_key;
  std::uint64_t tsc_khz = 0;
  std::uint64_t epoch = 0;       ///< Of the agent at the save.
  std::uint64_t disk_bytes = 0;  ///< Virtual size of disk.qcow2.
  std::int64_t created_ns = 0;   ///< CLOCK_REALTIME.
  MachineShape shape;
};
[[nodiscard]] std::string encode_manifest(const BaseManifest& manifest);
/// Strict, like decode_record().
Result<BaseManifest> decode_manifest(std::string_view json);

/// SHA-256 hex over everything that must be equal for saved memory to fit, but the TSC frequency.
[[nodiscard]] std::string base_key(const BaseRecipe& recipe, const GuestAssets& assets,
                                   const HypervisorInfo& hypervisor);

struct BaseContext {
  const Home& home;
  const Installation& installation;
  const GuestAssets& assets;
  const Host& host;
  /// Told before the slow part: a stage's name.
  std::function<void(std::string_view stage)> on_stage;
};

/// The base snapshot of `recipe`, made now if it is missing or does not fit (TSC). One process makes it,
/// others wait.
Result<BaseManifest> ensure_base(const BaseContext& context, const BaseRecipe& recipe);
/// Only looks: kNotFound when it would have to be made.
Result<BaseManifest> find_base(const BaseContext& context, const BaseRecipe& recipe);

/// Removes base snapshots not used for `unused_for`, or whose hypervisor state does not fit `host` any more,
/// and kernels that neither `assets` nor a remaining base needs.
Result<PruneReport> prune_bases(const Home& home, const Host& host, const GuestAssets& assets,
                                std::chrono::seconds unused_for, Prune what);

}  // namespace drupe
