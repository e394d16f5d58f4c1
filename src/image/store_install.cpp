// From verified layers to an image in the store.
#include <algorithm>
#include <cerrno>
#include <ctime>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/digest.h"
#include "image/disk.h"
#include "image/store_impl.h"
#include "image/text.h"

namespace drupe {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kLargeDisk = 32 * kGiB;
/// Stored layers of more than this may not fit the usual disk when they are unpacked.
constexpr std::uint64_t kLargeLayers = 2 * kGiB;

std::array<std::uint8_t, 16> uuid_from(const std::string& seed) {
  const std::string hex = sha256_hex("drupe disk " + seed);
  std::array<std::uint8_t, 16> uuid{};
  for (std::size_t i = 0; i < uuid.size(); ++i)
    uuid[i] = static_cast<std::uint8_t>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  // Version 8 (RFC 9562): what is in it is our own business.
  uuid[6] = static_cast<std::uint8_t>((uuid[6] & 0x0f) | 0x80);
  uuid[8] = static_cast<std::uint8_t>((uuid[8] & 0x3f) | 0x80);
  return uuid;
}

}  // namespace

Status check_platform(const ImageConfig& config, const std::string& platform) {
  const std::string own = config.os + "/" + config.architecture;
  if (config.os.empty() || config.architecture.empty() || own == platform) return {};
  return fail(ErrorCode::kUnsupported, "The image is made for " + shown(own) + ", not for " + platform);
}

Status StoreImpl::begin() {
  DRUPE_TRY(files_.prepare());
  DRUPE_ASSIGN(const UniqueFd lock, files_.lock());
  files_.sweep();
  return {};
}

Status StoreImpl::give_names(const std::string& id, const std::vector<std::string>& names) {
  for (const std::string& name : names) DRUPE_TRY(files_.write_name(name, id));
  return {};
}

Status StoreImpl::seal_disk(int fd) {
  if (::fsync(fd) != 0) return fail_sys("Syncing the image's disk failed", errno);
  // Shared by all sandboxes of the image through hard links: nobody may write it.
  if (::fchmod(fd, 0400) != 0) return fail_sys("Protecting the image's disk failed", errno);
  return {};
}

Status StoreImpl::write_image_disk(const StoreFiles::Scratch& scratch, Image& image, const std::string& seed,
                                   const std::vector<LayerInput>& layers, std::uint64_t virtual_bytes,
                                   const Watch& watch) {
  DRUPE_ASSIGN(const UniqueFd fd,
               open_at(scratch.dir.get(), kDiskFile, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  DiskOptions options;
  options.virtual_bytes = virtual_bytes;
  options.uuid = uuid_from(seed);
  options.progress = watch.on_progress;
  options.cancel = watch.cancel;
  DRUPE_ASSIGN(const DiskSummary summary, write_disk(fd.get(), layers, options));
  DRUPE_TRY(seal_disk(fd.get()));
  image.disk_bytes = summary.allocated_bytes;
  image.virtual_bytes = summary.virtual_bytes;
  return {};
}

Result<Image> StoreImpl::publish(StoreFiles::Scratch scratch, Image image,
                                 const std::vector<std::string>& names) {
  image.created = static_cast<std::int64_t>(std::time(nullptr));
  DRUPE_ASSIGN(const UniqueFd lock, files_.lock());
  DRUPE_TRY(files_.publish(std::move(scratch), image));
  DRUPE_TRY(give_names(image.id, names));
  DRUPE_ASSIGN(Image published, files_.read_image(image.id));
  for (const std::string& name : names)
    if (const auto reference = parse_reference(name)) published.names.push_back(reference->familiar());
  return published;
}

Result<Image> StoreImpl::install(const NewImage& request, const Watch& watch) {
  const std::string work = "image-" + request.id;
  DRUPE_ASSIGN(UniqueFd mine, files_.lock_work(work, watch.cancel, [&] {
    if (watch.on_progress) watch.on_progress({"Waiting for another process that writes this image", 0, 0});
  }));
  const auto done = [&](Result<Image> result) {
    files_.unlock_work(work, std::move(mine));
    return result;
  };
  if (files_.has_image(request.id)) {
    DRUPE_ASSIGN(const UniqueFd lock, files_.lock());
    if (auto named = give_names(request.id, request.names); !named)
      return done(std::unexpected(std::move(named).error()));
    auto image = files_.read_image(request.id);
    if (image)
      for (const std::string& name : request.names)
        if (const auto reference = parse_reference(name)) image->names.push_back(reference->familiar());
    return done(std::move(image));
  }
  if (request.layers.size() != request.spec.diff_ids.size())
    return done(fail(ErrorCode::kIntegrity, "The image has " + std::to_string(request.layers.size()) +
                                                " layers, but its config names " +
                                                std::to_string(request.spec.diff_ids.size())));
  std::uint64_t stored = 0;
  std::vector<LayerInput> layers;
  for (std::size_t i = 0; i < request.layers.size(); ++i) {
    const LayerFile& file = request.layers[i];
    const std::string& diff_id = request.spec.diff_ids[i];
    stored += file.size;
    layers.push_back({"layer " + std::to_string(i + 1) + " of " + std::to_string(request.layers.size()),
                      file.promised == Compression::kNone ? file.size : 0,
                      [&file, &diff_id] { return open_layer(file, diff_id); }});
  }
  auto scratch = files_.make_scratch();
  if (!scratch) return done(std::unexpected(std::move(scratch).error()));
  Image image;
  image.id = request.id;
  image.config = request.spec.config;
  image.diff_ids = request.spec.diff_ids;
  image.manifest_digest = request.manifest_digest;
  const auto written = write_image_disk(*scratch, image, request.id, layers,
                                        stored > kLargeLayers ? kLargeDisk : kUsualDisk, watch);
  if (!written) {
    files_.discard(*std::move(scratch));
    return done(std::unexpected(Error(written.error()).in("The image " + request.title + " cannot be used")));
  }
  return done(publish(*std::move(scratch), std::move(image), request.names));
}

}  // namespace drupe
