// The store behind store.h. Its operations: store.cpp (looking up, names, removal), store_install.cpp (layers
// to an image), store_pull.cpp, store_load.cpp, store_build.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "image/archive.h"
#include "image/disk.h"
#include "image/layer_source.h"
#include "image/reference.h"
#include "image/registry.h"
#include "image/store.h"
#include "image/store_files.h"

namespace drupe {

/// How a long operation is watched.
struct Watch {
  OnProgress on_progress{};
  CancelFlag cancel = nullptr;
};

/// An image about to be made of stored layers.
struct NewImage {
  std::string id;
  ImageSpec spec;
  std::string manifest_digest;
  std::string title;  ///< For progress.
  std::vector<LayerFile> layers;
  std::vector<std::string> names;  ///< Canonical.
};

class StoreImpl final : public ImageStore {
 public:
  explicit StoreImpl(StoreFiles files) : files_(std::move(files)) {}

  Result<Image> find(std::string_view name_or_id) override;
  Result<std::vector<Image>> list() override;
  Status tag(std::string_view source, std::string_view target) override;
  Result<RemovedImage> remove(std::string_view name_or_id, bool force) override;
  Result<Image> pull(std::string_view reference, const PullOptions& options) override;
  Result<std::vector<Image>> load(const std::string& path, const LoadOptions& options) override;
  Result<std::vector<Image>> load(int fd, const LoadOptions& options) override;
  Result<Image> import_rootfs_tar(int fd, const ImageConfig& config, const std::vector<std::string>& names,
                                  const BuildOptions& options) override;
  Result<Image> build_debian(std::string_view name, const BuildOptions& options) override;
  /// import_disk.h
  Result<Image> import_disk(const std::function<Status(int fd)>& write, const ImageConfig& config,
                            const std::vector<std::string>& names);

 private:
  struct Target {
    std::string id;
    std::string name;  ///< Canonical; empty when it was found by its id.
  };

  // store.cpp
  Result<Target> resolve(std::string_view name_or_id);
  Result<Image> image_of(const Target& target);
  Result<std::vector<std::string>> names_of(const std::string& id);

  // store_install.cpp
  /// Makes the folders and sweeps them; before every operation that makes an image.
  Status begin();
  Status give_names(const std::string& id, const std::vector<std::string>& names);
  /// Writes the disk (once, however many ask for the same image) and publishes it with its names.
  Result<Image> install(const NewImage& image, const Watch& watch);
  /// Writes a disk into `scratch` and fills in the sizes of `image`.
  Status write_image_disk(const StoreFiles::Scratch& scratch, Image& image, const std::string& seed,
                          const std::vector<LayerInput>& layers, std::uint64_t virtual_bytes,
                          const Watch& watch);
  /// Makes a written disk durable and read-only for everybody.
  static Status seal_disk(int fd);
  Result<Image> publish(StoreFiles::Scratch scratch, Image image, const std::vector<std::string>& names);

  // store_build.cpp
  /// Makes an image of layers that are read for the first time now.
  Result<Image> install_new(const ImageConfig& config, std::vector<LayerInput> layers,
                            const std::vector<std::string>& names, const Watch& watch);

  // store_pull.cpp
  struct Fetched;
  Result<Fetched> fetch_manifest(Registry& registry, const Reference& reference, const std::string& platform);
  Result<Image> fetch(const Reference& reference, const PullOptions& options);
  /// `blobs`: the different ones of `layers`, sorted by digest.
  Result<Image> fetch_and_install(const Registry& registry, NewImage& image,
                                  const std::vector<Descriptor>& blobs, const std::vector<Descriptor>& layers,
                                  const Watch& watch);
  Status fetch_layers(const Registry& registry, const std::string& title,
                      const std::vector<Descriptor>& layers, std::vector<UniqueFd>& files,
                      const Watch& watch);

  // store_load.cpp
  Result<std::vector<Image>> load_all(Archive& archive, const LoadOptions& options);
  Result<Image> load_saved(Archive& archive, const SavedImage& saved, const LoadOptions& options);
  Result<Image> load_layout(Archive& archive, const Descriptor& entry, const LoadOptions& options);

  StoreFiles files_;
};

/// The size of a disk that has room for usual images, and work in them.
inline constexpr std::uint64_t kUsualDisk = std::uint64_t{8} << 30;

/// kUnsupported unless the config is for `platform` ("linux/amd64").
Status check_platform(const ImageConfig& config, const std::string& platform);

}  // namespace drupe
