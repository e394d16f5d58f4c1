// Pulling: manifest, config, layers (several at once), disk.
#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include <sys/statvfs.h>

#include "image/digest.h"
#include "image/store_impl.h"
#include "image/text.h"

namespace drupe {
namespace {

constexpr std::size_t kParallel = 3;
constexpr std::chrono::milliseconds kReportEvery{100};

std::string lock_name(const Reference& reference) {
  std::string name = "pull-" + reference.canonical();
  std::ranges::replace(name, '/', '+');
  return name;
}

/// Downloads blobs with a few threads. What they share is guarded by `mutex`.
class Downloads {
 public:
  struct Item {
    Descriptor blob;
    int fd;
  };
  Downloads(const Registry& registry, std::vector<Item> items)
      : registry_(registry), items_(std::move(items)), there_(items_.size()) {
    for (const Item& item : items_) total_ += item.blob.size;
  }

  Status run(const std::string& title, const Watch& watch) {
    std::vector<std::jthread> threads;
    const std::size_t count = std::min(kParallel, items_.size());
    running_ = count;
    for (std::size_t i = 0; i < count; ++i) threads.emplace_back([this] { work(); });
    std::unique_lock lock(mutex_);
    while (running_ != 0) {
      changed_.wait_for(lock, kReportEvery);
      if (cancelled(watch.cancel)) stop_ = true;
      const std::uint64_t done = sum();
      lock.unlock();
      if (watch.on_progress) watch.on_progress({title, done, total_});
      lock.lock();
    }
    if (cancelled(watch.cancel))
      return fail(ErrorCode::kCancelled, "The pull was stopped",
                  "Start it again to continue: what has arrived is kept.");
    return error_ ? Status(std::unexpected(*error_)) : Status();
  }

 private:
  [[nodiscard]] std::uint64_t sum() const {
    std::uint64_t all = 0;
    for (const std::uint64_t bytes : there_) all += bytes;
    return all;
  }

  void work() {
    RegistryOptions options = registry_.options();
    options.cancel = &stop_;
    Registry registry = registry_.clone(options);
    while (true) {
      std::size_t index = 0;
      {
        const std::scoped_lock lock(mutex_);
        if (stop_ || next_ == items_.size()) break;
        index = next_++;
      }
      const Status done =
          registry.download(items_[index].blob, items_[index].fd, [this, index](std::uint64_t bytes) {
            const std::scoped_lock lock(mutex_);
            there_[index] = bytes;
          });
      if (done) continue;
      const std::scoped_lock lock(mutex_);
      if (!error_) error_ = done.error();
      stop_ = true;
    }
    const std::scoped_lock lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  const Registry& registry_;
  const std::vector<Item> items_;
  std::uint64_t total_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint64_t> there_;
  std::size_t next_ = 0;
  std::size_t running_ = 0;
  std::optional<Error> error_;
};

}  // namespace

struct StoreImpl::Fetched {
  Manifest manifest;
  std::string digest;  ///< Of what the name means: index or manifest.
};

Result<StoreImpl::Fetched> StoreImpl::fetch_manifest(Registry& registry, const Reference& reference,
                                                     const std::string& platform) {
  DRUPE_ASSIGN(const FetchedManifest top, registry.manifest(reference.selector()));
  DRUPE_ASSIGN(Manifest manifest, parse_manifest(top.bytes, top.media_type));
  if (manifest.is_index) {
    DRUPE_ASSIGN(const Descriptor entry, pick_platform(manifest, platform));
    DRUPE_ASSIGN(const FetchedManifest inner, registry.manifest("sha256:" + entry.digest));
    if (inner.bytes.size() != entry.size)
      return fail(ErrorCode::kIntegrity, "The image's manifest does not have the size that its index names");
    DRUPE_ASSIGN(manifest, parse_manifest(inner.bytes, entry.media_type));
    if (manifest.is_index)
      return fail(ErrorCode::kUnsupported, "The image is an index of indexes, which is not supported");
  }
  DRUPE_TRY(check_is_image(manifest));
  return Fetched{std::move(manifest), top.digest};
}

Status StoreImpl::fetch_layers(const Registry& registry, const std::string& title,
                               const std::vector<Descriptor>& layers, std::vector<UniqueFd>& files,
                               const Watch& watch) {
  std::uint64_t total = 0;
  for (const Descriptor& layer : layers) total += layer.size;
  struct statvfs room{};
  if (::fstatvfs(files_.dir(), &room) == 0 && total > std::uint64_t{room.f_bavail} * room.f_frsize)
    return fail(ErrorCode::kLimit,
                "The image " + title + " has " + std::to_string(total >> 20) +
                    " MiB of layers, and the disk of the image store has only " +
                    std::to_string((std::uint64_t{room.f_bavail} * room.f_frsize) >> 20) + " MiB left",
                "Remove images (drupe rmi) or sandboxes (drupe rm), or give $DRUPE_HOME another disk.");
  std::vector<Downloads::Item> items;
  for (const Descriptor& layer : layers) {
    DRUPE_ASSIGN(UniqueFd fd, files_.open_blob(layer.digest, layer.size, watch.cancel, [&] {
      if (watch.on_progress)
        watch.on_progress({"Waiting for another process that downloads the same layer", 0, 0});
    }));
    items.push_back({layer, fd.get()});
    files.push_back(std::move(fd));
  }
  if (items.empty()) return {};
  Downloads downloads(registry, std::move(items));
  DRUPE_TRY(downloads.run("Downloading " + title, watch));
  for (const UniqueFd& file : files) StoreFiles::share_blob(file.get());
  return {};
}

Result<Image> StoreImpl::fetch(const Reference& reference, const PullOptions& options) {
  const Watch watch{options.on_progress, options.cancel};
  const std::string title = reference.familiar();
  if (watch.on_progress) watch.on_progress({"Asking the registry for " + title, 0, 0});
  Registry registry(reference, {options.insecure, options.cancel});
  DRUPE_ASSIGN(const Fetched fetched, fetch_manifest(registry, reference, options.platform));
  const Manifest& manifest = fetched.manifest;
  NewImage image;
  image.id = manifest.config.digest;
  image.title = title;
  image.manifest_digest = fetched.digest;
  image.names = {reference.canonical()};
  if (files_.has_image(image.id)) return install(image, watch);

  DRUPE_ASSIGN(const std::string config, registry.blob(manifest.config, kConfigLimit));
  DRUPE_ASSIGN(image.spec, parse_image_spec(config));
  DRUPE_TRY(check_platform(image.spec.config, options.platform));
  // One blob may be several layers (the empty one often is): it is fetched once.
  std::vector<Descriptor> blobs;
  std::map<std::string, std::size_t> places;
  for (const Descriptor& layer : manifest.layers) {
    const auto [place, added] = places.emplace(layer.digest, blobs.size());
    if (added) blobs.push_back(layer);
    if (blobs[place->second].size != layer.size)
      return fail(ErrorCode::kIntegrity, "The image's manifest names one layer with two sizes");
  }
  // In one order for all, so that two pulls that share layers cannot wait for each other.
  std::ranges::sort(blobs, {}, &Descriptor::digest);
  auto installed = fetch_and_install(registry, image, blobs, manifest.layers, watch);
  // What has arrived serves a new try after a break; bytes that turned out useless do not.
  const bool keep = !installed && (installed.error().code == ErrorCode::kCancelled ||
                                   installed.error().code == ErrorCode::kUnavailable);
  for (const Descriptor& blob : blobs)
    if (!keep || files_.is_empty_blob(blob.digest)) files_.drop_blob(blob.digest);
  return installed;
}

Result<Image> StoreImpl::fetch_and_install(const Registry& registry, NewImage& image,
                                           const std::vector<Descriptor>& blobs,
                                           const std::vector<Descriptor>& layers, const Watch& watch) {
  std::vector<UniqueFd> files;
  DRUPE_TRY(fetch_layers(registry, image.title, blobs, files, watch));
  for (const Descriptor& layer : layers) {
    DRUPE_ASSIGN(const Compression compression, layer_compression(layer.media_type));
    const auto place = std::ranges::lower_bound(blobs, layer.digest, {}, &Descriptor::digest);
    image.layers.push_back(
        {files[static_cast<std::size_t>(place - blobs.begin())].get(), 0, layer.size, {}, compression});
  }
  return install(image, watch);
}

Result<Image> StoreImpl::pull(std::string_view text, const PullOptions& options) {
  DRUPE_ASSIGN(const Reference reference, parse_reference(text));
  const std::string name = reference.canonical();
  const auto present = [&]() -> std::optional<Image> {
    const auto id = files_.read_name(name);
    if (!id || options.force) return std::nullopt;
    auto image = image_of({*id, name});
    return image ? std::optional(*std::move(image)) : std::nullopt;
  };
  if (auto image = present()) return *std::move(image);
  DRUPE_TRY(begin());
  const std::string work = lock_name(reference);
  DRUPE_ASSIGN(UniqueFd mine, files_.lock_work(work, options.cancel, [&] {
    if (options.on_progress) options.on_progress({"Waiting for another process that pulls this image", 0, 0});
  }));
  // Twenty first uses wait here, and nineteen find the image.
  auto image = present();
  Result<Image> result = image ? Result<Image>(*std::move(image)) : fetch(reference, options);
  files_.unlock_work(work, std::move(mine));
  return result;
}

}  // namespace drupe
