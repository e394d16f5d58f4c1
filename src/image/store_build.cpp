// Images made of streams whose content is not known before: imports and builds.
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/ids.h"
#include "image/debian.h"
#include "image/digest.h"
#include "image/import_disk.h"
#include "image/store_impl.h"

namespace drupe {
namespace {

/// Lends a source that outlives it.
class LentSource : public ByteSource {
 public:
  explicit LentSource(ByteSource& inner) : inner_(inner) {}
  Result<std::size_t> read(std::span<std::uint8_t> into) override { return inner_.read(into); }

 private:
  ByteSource& inner_;
};

/// Writes the digest of what went through to `hex`, which outlives it, at the end.
class RecordingSource : public ByteSource {
 public:
  RecordingSource(std::unique_ptr<ByteSource> inner, std::string& hex)
      : inner_(std::move(inner)), hex_(hex) {}
  Result<std::size_t> read(std::span<std::uint8_t> into) override {
    if (!hex_.empty()) return std::size_t{0};
    DRUPE_ASSIGN(const std::size_t got, inner_->read(into));
    hash_.update(into.first(got));
    if (got == 0) hex_ = hash_.hex();
    return got;
  }

 private:
  std::unique_ptr<ByteSource> inner_;
  std::string& hex_;
  Sha256 hash_;
};

Result<std::vector<std::string>> canonical_names(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& name : names) {
    DRUPE_ASSIGN(const Reference reference, parse_reference(name));
    if (!reference.digest.empty())
      return fail(ErrorCode::kInvalidArgument,
                  "A name that is given to an image has a tag, not a digest: " + name);
    out.push_back(reference.canonical());
  }
  return out;
}

}  // namespace

Result<Image> StoreImpl::install_new(const ImageConfig& config, std::vector<LayerInput> layers,
                                     const std::vector<std::string>& names, const Watch& watch) {
  DRUPE_ASSIGN(const auto canonical, canonical_names(names));
  Image image;
  image.config = config;
  image.diff_ids.resize(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i)
    layers[i].open = [open = std::move(layers[i].open),
                      &hex = image.diff_ids[i]]() -> Result<std::unique_ptr<ByteSource>> {
      DRUPE_ASSIGN(auto source, open());
      return std::make_unique<RecordingSource>(std::move(source), hex);
    };
  DRUPE_ASSIGN(StoreFiles::Scratch scratch, files_.make_scratch());
  std::string seed = encode_image_spec({config, {}});
  for (const std::string& name : canonical) seed += name + "\n";
  const auto written = write_image_disk(scratch, image, seed, layers, kUsualDisk, watch);
  if (!written) {
    files_.discard(std::move(scratch));
    return std::unexpected(written.error());
  }
  image.id = sha256_hex(encode_image_spec({image.config, image.diff_ids}));
  return publish(std::move(scratch), std::move(image), canonical);
}

Result<Image> StoreImpl::import_rootfs_tar(int fd, const ImageConfig& config,
                                           const std::vector<std::string>& names,
                                           const BuildOptions& options) {
  DRUPE_TRY(begin());
  FdSource file(fd);
  DRUPE_ASSIGN(const auto plain, decompress(file, DecompressLimits{}));
  ByteSource& stream = *plain;
  const auto open = [&stream]() -> Result<std::unique_ptr<ByteSource>> {
    return std::make_unique<LentSource>(stream);
  };
  return install_new(config, {{"the root file system", 0, open}}, names,
                     {options.on_progress, options.cancel});
}

Result<Image> StoreImpl::import_disk(const std::function<Status(int fd)>& write, const ImageConfig& config,
                                     const std::vector<std::string>& names) {
  DRUPE_ASSIGN(const auto canonical, canonical_names(names));
  DRUPE_TRY(begin());
  DRUPE_ASSIGN(StoreFiles::Scratch scratch, files_.make_scratch());
  Image image;
  image.config = config;
  // Stands for the layers that there are none of, and makes the image's id its own.
  image.diff_ids = {to_hex(random_bytes(32))};
  image.id = sha256_hex(encode_image_spec({image.config, image.diff_ids}));
  const auto fill = [&]() -> Status {
    DRUPE_ASSIGN(const UniqueFd fd,
                 open_at(scratch.dir.get(), kDiskFile, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
    DRUPE_TRY(write(fd.get()));
    struct stat info{};
    if (::fstat(fd.get(), &info) != 0) return fail_sys("Looking at the image's disk failed", errno);
    image.virtual_bytes = static_cast<std::uint64_t>(info.st_size);
    image.disk_bytes = static_cast<std::uint64_t>(info.st_blocks) * 512;
    return seal_disk(fd.get());
  };
  if (auto filled = fill(); !filled) {
    files_.discard(std::move(scratch));
    return std::unexpected(std::move(filled).error());
  }
  return publish(std::move(scratch), std::move(image), canonical);
}

Result<Image> import_disk(const std::string& store, const std::function<Status(int fd)>& write,
                          const ImageConfig& config, const std::vector<std::string>& names) {
  DRUPE_ASSIGN(StoreFiles files, StoreFiles::open(store));
  return StoreImpl(std::move(files)).import_disk(write, config, names);
}

Result<Image> StoreImpl::build_debian(std::string_view name, const BuildOptions& options) {
  DRUPE_TRY(begin());
  DRUPE_ASSIGN(DebianBuild build, prepare_debian(name, {options.on_progress, options.cancel}));
  return install_new(build.config, std::move(build.layers), {std::string(name)},
                     {options.on_progress, options.cancel});
}

}  // namespace drupe
