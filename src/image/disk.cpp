#include "image/disk.h"

#include <array>
#include <cerrno>
#include <chrono>

#include <sys/stat.h>
#include <unistd.h>

#include "base/tar_decode.h"
#include "image/disk_space.h"
#include "image/ext4.h"
#include "image/layer.h"
#include "image/read_ahead.h"
#include "image/tree.h"

namespace drupe {
namespace {

constexpr std::uint64_t kMinBytes = std::uint64_t{64} << 20U;
constexpr std::uint64_t kMaxBytes = std::uint64_t{8} << 40U;

Status check(const DiskOptions& options) {
  if (options.virtual_bytes < kMinBytes || options.virtual_bytes > kMaxBytes ||
      options.virtual_bytes % (1U << 20U) != 0)
    return fail(ErrorCode::kInvalidArgument, "The size of a disk image is 64 MiB to 8 TiB in whole MiB");
  return {};
}

/// Tells the caller about ten times a second, and at the end of a layer.
class Reporter {
 public:
  Reporter(const DiskOptions& options, const LayerInput& layer)
      : options_(options), progress_{.what = "Writing " + layer.label, .total = layer.expected_size} {}
  Status add(std::uint64_t bytes) {
    progress_.done += bytes;
    if (cancelled(options_.cancel)) return fail(ErrorCode::kCancelled, "Making the image's disk was stopped");
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ >= std::chrono::milliseconds(100)) report(now);
    return {};
  }
  void end() { report(std::chrono::steady_clock::now()); }

 private:
  void report(std::chrono::steady_clock::time_point now) {
    last_ = now;
    if (options_.progress) options_.progress(progress_);
  }
  const DiskOptions& options_;
  Progress progress_;
  std::chrono::steady_clock::time_point last_{};
};

/// To the very end of the source, beyond the end of the archive: only then has a digest been checked.
Status stream_layer(const LayerInput& layer, const DiskOptions& options, LayerApplier& applier) {
  DRUPE_ASSIGN(auto source, layer.open());
  TarDecoder decoder(
      {.on_entry = [&](const TarEntry& entry) { return applier.entry(entry); },
       .on_data = [&](std::uint64_t offset, ByteView bytes) { return applier.data(offset, bytes); },
       .on_entry_end = nullptr});
  Reporter reporter(options, layer);
  ReadAhead reader(std::move(source));
  ReadAhead::Chunk chunk;
  while (true) {
    DRUPE_ASSIGN(chunk, reader.next(std::move(chunk)));
    if (chunk.empty()) break;
    DRUPE_TRY(decoder.feed(chunk));
    DRUPE_TRY(reporter.add(chunk.size()));
  }
  reporter.end();
  return decoder.finish();
}

/// The guest mounts over these. Missing ones are made. Over dev, proc and sys it mounts before anything of
/// the image runs, so there something else than a directory, a link in particular, is replaced by an empty
/// one.
void add_mount_points(ImageTree& tree, int layer) {
  struct Point {
    const char* name;
    std::uint32_t mode;
    bool must_be_directory;
  };
  constexpr std::array<Point, 7> kPoints{{{"dev", 0755, true},
                                          {"proc", 0555, true},
                                          {"sys", 0555, true},
                                          {"etc", 0755, false},
                                          {"run", 0755, false},
                                          {"tmp", 01777, false},
                                          {"lost+found", 0700, true}}};
  for (const Point& point : kPoints) {
    const auto at = tree.root().children.find(point.name);
    const bool there = at != tree.root().children.end();
    if (there && (at->second.inode->type == 'd' || !point.must_be_directory)) continue;
    tree.put({.dir = &tree.root(), .name = point.name}, 'd', layer).mode = point.mode;
  }
}

}  // namespace

Result<DiskSummary> write_disk(int fd, const std::vector<LayerInput>& layers, const DiskOptions& options) {
  DRUPE_TRY(check(options));
  if (::ftruncate(fd, static_cast<off_t>(options.virtual_bytes)) != 0)
    return fail_sys("Making room for the disk image failed", errno);
  DRUPE_ASSIGN(const auto ext4, Ext4::create(fd, {.bytes = options.virtual_bytes, .uuid = options.uuid}));
  DiskSpace space(fd, *ext4);
  ImageTree tree(space, static_cast<std::uint32_t>(options.limits.depth));
  LayerTotals totals;
  int number = 0;
  for (const LayerInput& layer : layers) {
    LayerApplier applier(tree, space, options.limits, totals, ++number);
    if (auto status = stream_layer(layer, options, applier); !status)
      return std::unexpected(std::move(status).error().in("Writing " + layer.label + " failed"));
  }
  add_mount_points(tree, number + 1);
  DRUPE_TRY(ext4->finish(tree, space));
  struct stat info{};
  if (::fstat(fd, &info) != 0) return fail_sys("Looking at the disk image failed", errno);
  return DiskSummary{.allocated_bytes = static_cast<std::uint64_t>(info.st_blocks) * 512,
                     .virtual_bytes = options.virtual_bytes,
                     .entries = tree.entries()};
}

}  // namespace drupe
