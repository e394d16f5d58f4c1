// An OCI image into a bootable disk, against `tar x` of the same layers.
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "guest_work.h"
#include "image/digest.h"
#include "image/store.h"

namespace drupe::bench {
namespace {

namespace fs = std::filesystem;
constexpr double kFactor = 1.5;
constexpr std::size_t kBlock = 1U << 20;

struct Layer {
  std::string tar;   ///< Path of the plain tar, for its diff id.
  std::string gzip;  ///< Path of the compressed blob.
  std::string digest, diff_id;
  std::uint64_t size = 0;
};

Result<std::string> digest_of(const std::string& path) {
  DRUPE_ASSIGN(const UniqueFd file, open_at(AT_FDCWD, path, O_RDONLY));
  Sha256 hash;
  std::string block(kBlock, '\0');
  while (true) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0) return fail_sys("Reading a layer failed", errno);
    if (got == 0) return hash.hex();
    hash.update(std::string_view(block.data(), static_cast<std::size_t>(got)));
  }
}

Status make_blob(const std::string& layout, const std::string& bytes, std::string& digest) {
  digest = sha256_hex(bytes);
  return replace_file(AT_FDCWD, layout + "/blobs/sha256/" + digest, bytes, Sync::kNo);
}

/// Takes a tar into the layout as a gzip layer.
Result<Layer> take_layer(const std::string& layout, const std::string& tar) {
  Layer layer;
  layer.tar = tar;
  DRUPE_TRY(run_program({"/bin/sh", "-c", "gzip -1 -n -k -f '" + tar + "'"}));
  DRUPE_ASSIGN(layer.diff_id, digest_of(tar));
  DRUPE_ASSIGN(layer.digest, digest_of(tar + ".gz"));
  struct stat info{};
  if (::stat((tar + ".gz").c_str(), &info) != 0) return fail_sys("Looking at a layer failed", errno);
  layer.size = static_cast<std::uint64_t>(info.st_size);
  layer.gzip = layout + "/blobs/sha256/" + layer.digest;
  if (::rename((tar + ".gz").c_str(), layer.gzip.c_str()) != 0)
    return fail_sys("Moving a layer failed", errno);
  return layer;
}

std::string descriptor(const char* type, const std::string& digest, std::uint64_t size) {
  return std::string(R"({"mediaType":"application/vnd.oci.image.)") + type + R"(","digest":"sha256:)" +
         digest + R"(","size":)" + std::to_string(size) + "}";
}

/// An OCI layout of the layers. `salt` makes each image another one, so that none is found instead of made.
Status make_index(const std::string& layout, const std::vector<Layer>& layers, const std::string& salt) {
  std::string diff_ids, layer_list;
  for (const Layer& layer : layers) {
    const char* comma = diff_ids.empty() ? "" : ",";
    diff_ids += comma + std::string(R"("sha256:)") + layer.diff_id + '"';
    layer_list += comma + descriptor("layer.v1.tar+gzip", layer.digest, layer.size);
  }
  const std::string config = R"({"architecture":"amd64","os":"linux","config":{"Env":["SALT=)" + salt +
                             R"("]},"rootfs":{"type":"layers","diff_ids":[)" + diff_ids + "]}}";
  std::string config_digest, manifest_digest;
  DRUPE_TRY(make_blob(layout, config, config_digest));
  const std::string manifest =
      R"({"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":)" +
      descriptor("config.v1+json", config_digest, config.size()) + R"(,"layers":[)" + layer_list + "]}";
  DRUPE_TRY(make_blob(layout, manifest, manifest_digest));
  DRUPE_TRY(replace_file(AT_FDCWD, layout + "/oci-layout", R"({"imageLayoutVersion":"1.0.0"})", Sync::kNo));
  return replace_file(AT_FDCWD, layout + "/index.json",
                      R"({"schemaVersion":2,"manifests":[)" +
                          descriptor("manifest.v1+json", manifest_digest, manifest.size()) + "]}",
                      Sync::kNo);
}

/// Three layers: the interpreter and programs, libraries, data; or the tar that was given.
Result<std::vector<Layer>> make_layers(Bench& bench, const std::string& layout) {
  std::vector<Layer> layers;
  if (!bench.settings.layer_tar.empty()) {
    const std::string copy = layout + "/layer.tar";
    DRUPE_TRY(run_program({"/bin/cp", bench.settings.layer_tar, copy}));
    DRUPE_ASSIGN(Layer layer, take_layer(layout, copy));
    layers.push_back(std::move(layer));
    return layers;
  }
  int number = 0;
  for (const char* part : {"usr/bin usr/sbin", "usr/lib/python3 usr/lib/python3.11 usr/lib/git-core",
                           "usr/include usr/share/perl"}) {
    const std::string tar = layout + "/layer" + std::to_string(number++) + ".tar";
    DRUPE_TRY(run_program({"/bin/sh", "-c",
                           "cd / && tar --ignore-failed-read --sort=name -cf '" + tar + "' $(ls -d " + part +
                               " 2>/dev/null)"}));
    DRUPE_ASSIGN(Layer layer, take_layer(layout, tar));
    layers.push_back(std::move(layer));
  }
  return layers;
}

Result<double> extract_once(const std::string& directory, const std::vector<Layer>& layers) {
  std::string line = "set -e; mkdir '" + directory + "'; cd '" + directory + "'";
  for (const Layer& layer : layers) line += "; tar -xzf '" + layer.gzip + "'";
  const auto begun = Clock::now();
  DRUPE_TRY(run_program({"/bin/sh", "-c", line}));
  const double took = ms_since(begun);
  DRUPE_TRY(remove_tree(AT_FDCWD, directory));
  return took;
}

}  // namespace

Status row_image(Bench& bench) {
  const std::string layout = bench.settings.scratch + "/layout";
  DRUPE_TRY(make_dirs(layout + "/blobs/sha256"));
  DRUPE_ASSIGN(const std::vector<Layer> layers, make_layers(bench, layout));
  DRUPE_ASSIGN(ImageStore* const store, bench.engine.images());
  Line line;
  line.row = "image";
  line.what = "OCI image -> bootable disk, " + std::to_string(layers.size()) + " layers";
  line.yardstick_what = "tar xz of the same layers";
  line.target = Target{kFactor, 0};
  for (std::uint32_t i = 0; i < bench.settings.bulk_samples; ++i) {
    const std::string name = "drupe-bench-layers:" + std::to_string(i);
    DRUPE_TRY(make_index(layout, layers, std::to_string(i) + "." + std::to_string(::getpid())));
    LoadOptions options;
    options.names = {name};
    const auto begun = Clock::now();
    DRUPE_ASSIGN(const auto loaded, store->load(layout, options));
    line.samples.push_back(ms_since(begun));
    for (const Image& image : loaded) DRUPE_TRY(store->remove(image.id, true));
    DRUPE_ASSIGN(const double extracted, extract_once(bench.settings.scratch + "/extracted", layers));
    line.yardstick.push_back(extracted);
  }
  std::uint64_t bytes = 0;
  for (const Layer& layer : layers) bytes += layer.size;
  line.details = {{"compressed MiB", static_cast<double>(bytes) / (1 << 20)}};
  bench.report.add(std::move(line));
  return remove_tree(AT_FDCWD, layout);
}

}  // namespace drupe::bench
