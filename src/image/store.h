// The images of a home: each is one read-only ext4 disk, a config, and the names it is known by. No daemon:
// any number of processes use one store at once. Images are written into disks, never extracted to a tree of
// the host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "image/config.h"
#include "image/progress.h"

namespace drupe {

struct Image {
  std::string id;  ///< SHA-256 of the config blob (Docker's image id), 64 hexadecimal digits.
  std::vector<std::string>
      names;  ///< "python:3.12-slim", sorted; from find(), only when found by a name: that one.
  ImageConfig config;
  std::vector<std::string> diff_ids;  ///< Of its layers, lowest first.
  std::uint64_t disk_bytes = 0;       ///< What the disk takes up on the host.
  std::uint64_t virtual_bytes = 0;    ///< What the guest sees.
  std::int64_t created = 0;           ///< When it came into this store, Unix seconds.
  std::string disk_path;              ///< Absolute. Read-only for everybody; hard-link it to keep it.
  std::string manifest_digest;        ///< 64 hexadecimal digits; empty when it did not come with a manifest.
};

struct PullOptions {
  bool insecure = false;  ///< Plain HTTP, and TLS without verification.
  bool force = false;     ///< Ask the registry even when the name is here.
  std::string platform = "linux/amd64";
  OnProgress on_progress{};
  CancelFlag cancel = nullptr;
};

struct LoadOptions {
  std::vector<std::string> names{};  ///< Additional names for the image; needs an archive of one image.
  std::string platform = "linux/amd64";
  OnProgress on_progress{};
  CancelFlag cancel = nullptr;
};

struct BuildOptions {
  OnProgress on_progress{};
  CancelFlag cancel = nullptr;
};

struct RemovedImage {
  std::vector<std::string> names;  ///< That were taken away.
  std::string deleted_id;          ///< Of the image that went with its last name; empty when others remain.
};

/// Holds a directory descriptor; used by one thread at a time. Operations that make images block.
class ImageStore {
 public:
  virtual ~ImageStore() = default;
  /// `path` is absolute; it is created (its parent must exist). Cheap: nothing is read.
  static Result<std::unique_ptr<ImageStore>> open(const std::string& path);

  /// By name ("python:3.12-slim"), id or unique id prefix of at least four digits, with or without "sha256:".
  /// kNotFound, kInvalidArgument for something that cannot be a name, or for an ambiguous prefix.
  virtual Result<Image> find(std::string_view name_or_id) = 0;
  /// All, newest first, with all names.
  virtual Result<std::vector<Image>> list() = 0;
  /// Gives the image `source` (as in find()) the name `target`, which may have meant another image before.
  virtual Status tag(std::string_view source, std::string_view target) = 0;
  /// Removes a name, and the image with its last one; by id only an image with at most one name unless
  /// `force`. Sandboxes made from it keep their links to the disk.
  virtual Result<RemovedImage> remove(std::string_view name_or_id, bool force = false) = 0;

  /// Fetches an image from its registry, unless it is here already. Many callers at once cause one download.
  virtual Result<Image> pull(std::string_view reference, const PullOptions& options) = 0;
  /// Reads archives of `docker save` and of OCI layouts, plain or compressed with gzip or zstd, and OCI
  /// layout folders.
  virtual Result<std::vector<Image>> load(const std::string& path, const LoadOptions& options) = 0;
  /// The same from a descriptor of a file or pipe, which is borrowed.
  virtual Result<std::vector<Image>> load(int fd, const LoadOptions& options) = 0;
  /// Makes an image of one layer from a tar stream (plain or compressed) of a root file system; `fd` is
  /// borrowed.
  virtual Result<Image> import_rootfs_tar(int fd, const ImageConfig& config,
                                          const std::vector<std::string>& names,
                                          const BuildOptions& options) = 0;
  /// Builds the recipe `name` (image/debian.h) and gives it that name.
  virtual Result<Image> build_debian(std::string_view name, const BuildOptions& options) = 0;
};

}  // namespace drupe
