// Loading archives: what `docker save` makes, and OCI image layouts (image-spec/image-layout.md).
#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/digest.h"
#include "image/store_impl.h"
#include "image/text.h"

namespace drupe {
namespace {

constexpr std::string_view kBlobs = "blobs/sha256/";
constexpr std::size_t kMaxImages = 256;

std::string blob_name(const std::string& digest) {
  return std::string(kBlobs) + digest;
}

/// The digest that a member's name promises, if it does.
std::string promised_digest(const std::string& name) {
  std::string_view rest = name;
  if (rest.starts_with(kBlobs)) rest.remove_prefix(kBlobs.size());
  if (rest.ends_with(".json")) rest.remove_suffix(5);
  return is_sha256_hex(rest) ? std::string(rest) : std::string();
}

std::unexpected<Error> wrong_digest(const std::string& digest) {
  return fail(ErrorCode::kIntegrity,
              "The archive's blob sha256:" + digest.substr(0, 12) +
                  " does not have the content that its digest names",
              "The archive is damaged: make it or copy it again.");
}

/// A blob of a layout, checked.
Result<std::string> read_blob(Archive& archive, const Descriptor& blob, std::size_t limit) {
  DRUPE_ASSIGN(std::string bytes, archive.read(blob_name(blob.digest), limit));
  if (bytes.size() != blob.size || sha256_hex(bytes) != blob.digest) return wrong_digest(blob.digest);
  return bytes;
}

/// Annotations name an image either completely or by its tag alone, which names nothing.
std::vector<std::string> names_from(const std::string& annotation) {
  if (annotation.find_first_of("/:") == std::string::npos) return {};
  const auto reference = parse_reference(annotation);
  if (!reference || !reference->digest.empty()) return {};
  return {reference->canonical()};
}

bool is_for(const Descriptor& entry, std::string_view platform) {
  return entry.os.empty() || entry.os + "/" + entry.architecture == platform;
}

/// The whole stream in a nameless file of the store.
Result<UniqueFd> spool(ByteSource& source, DirFd dir, const Watch& watch) {
  DRUPE_ASSIGN(UniqueFd file, open_at(dir, "tmp", O_RDWR | O_TMPFILE, 0600));
  std::vector<std::uint8_t> buffer(std::size_t{1} << 20);
  std::uint64_t done = 0;
  while (true) {
    DRUPE_ASSIGN(const std::size_t got, source.read(buffer));
    if (got == 0) return file;
    DRUPE_TRY(write_all(file.get(), as_text(std::span(buffer).first(got))));
    done += got;
    if (cancelled(watch.cancel)) return fail(ErrorCode::kCancelled, "The load was stopped");
    if (watch.on_progress) watch.on_progress({"Reading the archive", done, 0});
  }
}

}  // namespace

Result<Image> StoreImpl::load_saved(Archive& archive, const SavedImage& saved, const LoadOptions& options) {
  DRUPE_ASSIGN(const std::string config, archive.read(saved.config, kConfigLimit));
  NewImage image;
  image.id = sha256_hex(config);
  if (const std::string promised = promised_digest(saved.config); !promised.empty() && promised != image.id)
    return wrong_digest(promised);
  DRUPE_ASSIGN(image.spec, parse_image_spec(config));
  DRUPE_TRY(check_platform(image.spec.config, options.platform));
  for (const std::string& name : saved.names) {
    DRUPE_ASSIGN(const Reference reference, parse_reference(name));
    image.names.push_back(reference.canonical());
  }
  image.title = saved.names.empty() ? image.id.substr(0, 12) : saved.names.front();
  for (const std::string& layer : saved.layers) {
    DRUPE_ASSIGN(const ArchiveMember member, archive.find(layer));
    const std::string digest = layer.starts_with(kBlobs) ? promised_digest(layer) : std::string();
    image.layers.push_back({member.fd, member.offset, member.size, digest, std::nullopt});
  }
  return install(image, {options.on_progress, options.cancel});
}

Result<Image> StoreImpl::load_layout(Archive& archive, const Descriptor& entry, const LoadOptions& options) {
  DRUPE_ASSIGN(std::string bytes, read_blob(archive, entry, kManifestLimit));
  DRUPE_ASSIGN(Manifest manifest, parse_manifest(bytes, entry.media_type));
  if (manifest.is_index) {
    DRUPE_ASSIGN(const Descriptor inner, pick_platform(manifest, options.platform));
    DRUPE_ASSIGN(bytes, read_blob(archive, inner, kManifestLimit));
    DRUPE_ASSIGN(manifest, parse_manifest(bytes, inner.media_type));
    if (manifest.is_index)
      return fail(ErrorCode::kUnsupported, "The image is an index of indexes, which is not supported");
  }
  DRUPE_TRY(check_is_image(manifest));
  DRUPE_ASSIGN(const std::string config, read_blob(archive, manifest.config, kConfigLimit));
  NewImage image;
  image.id = manifest.config.digest;
  image.manifest_digest = entry.digest;
  image.names = names_from(entry.name);
  image.title = image.names.empty() ? image.id.substr(0, 12) : entry.name;
  DRUPE_ASSIGN(image.spec, parse_image_spec(config));
  DRUPE_TRY(check_platform(image.spec.config, options.platform));
  for (const Descriptor& layer : manifest.layers) {
    DRUPE_ASSIGN(const ArchiveMember member, archive.find(blob_name(layer.digest)));
    if (member.size != layer.size) return wrong_digest(layer.digest);
    DRUPE_ASSIGN(const Compression compression, layer_compression(layer.media_type));
    image.layers.push_back({member.fd, member.offset, member.size, layer.digest, compression});
  }
  return install(image, {options.on_progress, options.cancel});
}

Result<std::vector<Image>> StoreImpl::load_all(Archive& archive, const LoadOptions& options) {
  std::vector<std::string> extra;
  for (const std::string& name : options.names) {
    DRUPE_ASSIGN(const Reference reference, parse_reference(name));
    extra.push_back(reference.canonical());
  }
  const auto admit = [&extra](std::size_t count) -> Status {
    if (count > kMaxImages)
      return fail(ErrorCode::kLimit, "The archive has more than " + std::to_string(kMaxImages) + " images");
    if (count > 1 && !extra.empty())
      return fail(ErrorCode::kInvalidArgument, "The archive has several images, so one name cannot be given",
                  "Load it without a name, and use drupe tag.");
    return {};
  };
  std::vector<Image> images;
  // Docker since 25 writes both forms; its own one tells the names.
  auto saved_text = archive.read("manifest.json", kManifestLimit);
  if (saved_text) {
    DRUPE_ASSIGN(const auto saved, parse_saved_manifest(*saved_text));
    DRUPE_TRY(admit(saved.size()));
    for (const SavedImage& one : saved) {
      DRUPE_ASSIGN(Image image, load_saved(archive, one, options));
      images.push_back(std::move(image));
    }
  } else {
    if (saved_text.error().code != ErrorCode::kNotFound)
      return std::unexpected(std::move(saved_text).error());
    auto index_text = archive.read("index.json", kManifestLimit);
    if (!index_text && index_text.error().code == ErrorCode::kNotFound)
      return fail(ErrorCode::kIntegrity,
                  "This is neither what 'docker save' makes nor an OCI image layout: it has no manifest.json "
                  "and no index.json",
                  "A root file system without a config cannot be loaded; 'docker save' or 'skopeo copy' make "
                  "archives of images.");
    if (!index_text) return std::unexpected(std::move(index_text).error());
    DRUPE_ASSIGN(const Manifest index, parse_manifest(*index_text, ""));
    if (!index.is_index) return fail(ErrorCode::kIntegrity, "The archive's index.json is not an index");
    std::vector<Descriptor> entries;
    for (const Descriptor& entry : index.manifests)
      if (is_for(entry, options.platform)) entries.push_back(entry);
    if (entries.empty()) {
      DRUPE_ASSIGN(Descriptor none, pick_platform(index, options.platform));
      entries.push_back(std::move(none));
    }
    DRUPE_TRY(admit(entries.size()));
    for (const Descriptor& entry : entries) {
      DRUPE_ASSIGN(Image image, load_layout(archive, entry, options));
      images.push_back(std::move(image));
    }
  }
  if (extra.empty()) return images;
  DRUPE_ASSIGN(const UniqueFd lock, files_.lock());
  DRUPE_TRY(give_names(images.front().id, extra));
  for (const std::string& name : extra)
    if (const auto reference = parse_reference(name)) images.front().names.push_back(reference->familiar());
  return images;
}

Result<std::vector<Image>> StoreImpl::load(int fd, const LoadOptions& options) {
  DRUPE_TRY(begin());
  struct stat info{};
  if (::fstat(fd, &info) != 0) return fail_sys("Looking at the archive failed", errno);
  const off_t here = S_ISREG(info.st_mode) ? ::lseek(fd, 0, SEEK_CUR) : -1;
  if (here >= 0) {
    std::array<std::uint8_t, 4> head{};
    const ssize_t got = ::pread(fd, head.data(), head.size(), here);
    if (got == 4 && guess_compression(head) == Compression::kNone) {
      DRUPE_ASSIGN(const auto archive, open_tar_archive(fd, static_cast<std::uint64_t>(here)));
      return load_all(*archive, options);
    }
  }
  FdSource raw(fd);
  DRUPE_ASSIGN(const auto plain, decompress(raw, DecompressLimits{}));
  DRUPE_ASSIGN(const UniqueFd file, spool(*plain, files_.dir(), {options.on_progress, options.cancel}));
  DRUPE_ASSIGN(const auto archive, open_tar_archive(file.get(), 0));
  return load_all(*archive, options);
}

Result<std::vector<Image>> StoreImpl::load(const std::string& path, const LoadOptions& options) {
  DRUPE_ASSIGN(UniqueFd fd, open_at(AT_FDCWD, path, O_RDONLY));
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return fail_sys("Looking at " + path + " failed", errno);
  auto images = [&]() -> Result<std::vector<Image>> {
    if (!S_ISDIR(info.st_mode)) return load(fd.get(), options);
    DRUPE_TRY(begin());
    const auto archive = open_folder_archive(std::move(fd));
    return load_all(*archive, options);
  }();
  if (!images) return std::unexpected(std::move(images).error().in("Loading " + path + " failed"));
  return images;
}

}  // namespace drupe
