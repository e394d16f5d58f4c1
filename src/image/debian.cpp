#include "image/debian.h"

#include <memory>
#include <optional>
#include <utility>

#include "base/tar_encode.h"
#include "image/debian_host.h"
#include "image/mmdebstrap.h"
#include "image/npm_layer.h"
#include "image/pip_wheels.h"
#include "image/recipe.h"

namespace drupe {
namespace {

constexpr const char* kPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

class OwnedBytes : public ByteSource {
 public:
  explicit OwnedBytes(std::string bytes) : bytes_(std::move(bytes)), source_(bytes_) {}
  Result<std::size_t> read(std::span<std::uint8_t> into) override { return source_.read(into); }

 private:
  std::string bytes_;
  MemorySource source_;
};

ImageConfig config_of(const Recipe& recipe) {
  ImageConfig config;
  config.env = {kPath};
  config.env.insert(config.env.end(), recipe.env.begin(), recipe.env.end());
  config.cmd = recipe.cmd;
  config.working_dir = recipe.working_dir;
  config.architecture = "amd64";
  config.os = "linux";
  return config;
}

std::string whiteout_of(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  return encode_tar_entry({.name = folder + ".wh." + path.substr(folder.size()), .mode = 0600});
}

}  // namespace

std::vector<std::string> debian_recipes() {
  const auto folder = recipe_folder();
  return folder ? list_recipes(*folder) : std::vector<std::string>();
}

Result<DebianBuild> prepare_debian(std::string_view name, const DebianOptions& options) {
  DRUPE_ASSIGN(const std::string folder, recipe_folder());
  DRUPE_ASSIGN(const Recipe recipe, load_recipe(folder, name));
  DRUPE_ASSIGN(const DebianMirror mirror, host_mirror());
  MmdebstrapRequest request;
  DRUPE_ASSIGN(request.mode, build_mode());
  request.suite = recipe.suite;
  request.packages = recipe.packages;
  request.sources = source_lines(mirror, recipe.suite);
  request.on_progress = options.on_progress;
  request.cancel = options.cancel;

  std::optional<PipWheels> wheels;  // lives as long as the build
  if (!recipe.pip_lock.empty()) {
    if (options.on_progress) options.on_progress({.what = "Fetching Python packages"});
    DRUPE_ASSIGN(wheels, fetch_wheels(recipe.pip_lock, recipe.pip_python, options.cancel));
    request.hooks = pip_hooks(*wheels);
  }

  std::string changes;
  for (const std::string& path : recipe.removed) changes += whiteout_of(path);
  if (!recipe.npm_version.empty()) {
    if (options.on_progress) options.on_progress({.what = "Fetching npm " + recipe.npm_version});
    DRUPE_ASSIGN(const std::string registry, npm_registry());
    DRUPE_ASSIGN(const std::string package,
                 fetch_npm(registry, recipe.npm_version, recipe.npm_integrity, options.cancel));
    DRUPE_ASSIGN(const std::string npm, npm_layer(package));
    changes += npm;
  }

  DebianBuild build;
  build.config = config_of(recipe);
  build.layers.push_back(
      {.label = "the packages of " + std::string(name),
       .open = [request = std::move(request), wheels] { return run_mmdebstrap(request); }});
  if (changes.empty()) return build;
  changes += tar_end();
  const std::uint64_t size = changes.size();
  build.layers.push_back({.label = "the changes to " + std::string(name),
                          .expected_size = size,
                          .open = [changes = std::move(changes)]() -> Result<std::unique_ptr<ByteSource>> {
                            return std::make_unique<OwnedBytes>(changes);
                          }});
  return build;
}

}  // namespace drupe
