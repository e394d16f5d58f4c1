// Large blobs: into a file, continued after broken connections.
#include <cerrno>
#include <optional>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "image/digest.h"
#include "image/registry.h"
#include "image/source.h"
#include "image/text.h"

namespace drupe {
namespace {

/// New tries in a row that bring nothing, and in all.
constexpr int kFruitlessTries = 4;
constexpr int kAllTries = 40;

Status truncate_file(int fd) {
  if (::ftruncate(fd, 0) != 0) return fail_sys("Emptying a partial download failed", errno);
  return {};
}

}  // namespace

/// A download over all its tries.
struct Registry::Attempt {
  const Descriptor& blob;
  int fd;
  const std::function<void(std::uint64_t)>& on_bytes;
  std::uint64_t there = 0;
  Sha256 hash{};
  bool resumed = false;  ///< Holds bytes of an earlier process or try.

  Status restart() {
    DRUPE_TRY(truncate_file(fd));
    there = 0;
    hash = Sha256();
    resumed = false;
    return {};
  }
  /// Hashes what an earlier process has left.
  Status adopt() {
    struct stat info{};
    if (::fstat(fd, &info) != 0) return fail_sys("Looking at a partial download failed", errno);
    const auto size = static_cast<std::uint64_t>(info.st_size);
    if (size > blob.size) return restart();
    FileRangeSource file(fd, 0, size);
    std::vector<std::uint8_t> buffer(std::size_t{1} << 20);
    while (there < size) {
      DRUPE_ASSIGN(const std::size_t got, file.read(buffer));
      if (got == 0) break;
      hash.update(std::span(buffer).first(got));
      there += got;
    }
    resumed = there != 0;
    return {};
  }
  Status take(ByteView bytes) {
    if (bytes.size() > blob.size - there)
      return fail(ErrorCode::kIntegrity, "The registry sends more than the " + std::to_string(blob.size) +
                                             " bytes that the layer has by the manifest");
    DRUPE_TRY(pwrite_all(fd, as_text(bytes), there));
    hash.update(bytes);
    there += bytes.size();
    if (on_bytes) on_bytes(there);
    return {};
  }
};

Status Registry::download_once(Attempt& attempt) {
  HttpRequest request;
  request.limit = std::chrono::seconds(0);
  const std::uint64_t from = attempt.there;
  if (from != 0) request.headers.push_back("Range: bytes=" + std::to_string(from) + "-");
  bool checked = false;
  request.on_body = [&](int status, ByteView bytes) -> Status {
    if (!checked && from != 0 && status == 200) DRUPE_TRY(attempt.restart());
    checked = true;
    return attempt.take(bytes);
  };
  DRUPE_ASSIGN(const HttpResponse response,
               get_once("/v2/" + reference_.path + "/blobs/sha256:" + attempt.blob.digest, request));
  if (response.status == 416) return attempt.restart();
  if (response.status == 206 && from != 0 &&
      !response.header("content-range").starts_with("bytes " + std::to_string(from) + "-"))
    return attempt.restart();
  if (response.status != 200 && response.status != 206)
    return std::unexpected(refusal(response, "layer sha256:" + attempt.blob.digest.substr(0, 12) +
                                                 " of the image " + shown(reference_.path)));
  return {};
}

Status Registry::download(const Descriptor& blob, int fd,
                          const std::function<void(std::uint64_t)>& on_bytes) {
  Attempt attempt{blob, fd, on_bytes};
  DRUPE_TRY(ready());
  DRUPE_TRY(attempt.adopt());
  bool second_chance = true;
  int fruitless = 0;
  for (int tries = 0; tries < kAllTries; ++tries) {
    if (attempt.there == blob.size) {
      if (attempt.hash.hex() == blob.digest) return {};
      const bool patched = attempt.resumed;
      DRUPE_TRY(attempt.restart());
      // Bytes of several tries may not belong together; those of one are what the registry has.
      if (patched && second_chance) {
        second_chance = false;
        continue;
      }
      return fail(ErrorCode::kIntegrity,
                  "The layer sha256:" + blob.digest.substr(0, 12) + " that the registry " +
                      shown(reference_.host) + " sent does not have the digest that the manifest names",
                  "Try again; if it stays so, the image must be pushed again.");
    }
    const std::uint64_t before = attempt.there;
    const Status done = download_once(attempt);
    if (attempt.there == blob.size) continue;
    const bool broken =
        done || http_->failure() == HttpFailure::kBroken || done.error().code == ErrorCode::kUnavailable;
    if (!broken) {
      if (done.error().code == ErrorCode::kIntegrity) DRUPE_TRY(attempt.restart());
      return done;
    }
    attempt.resumed = attempt.there != 0;
    fruitless = attempt.there > before ? 0 : fruitless + 1;
    if (fruitless >= kFruitlessTries) {
      if (!done) return std::unexpected(Error(done.error()).in("Downloading a layer failed"));
      return fail(ErrorCode::kIntegrity,
                  "The registry " + shown(reference_.host) + " sends only " + std::to_string(attempt.there) +
                      " of the " + std::to_string(blob.size) +
                      " bytes of the layer sha256:" + blob.digest.substr(0, 12),
                  "Try again; if it stays so, the image must be pushed again.");
    }
    if (fruitless != 0) DRUPE_TRY(pause(fruitless - 1, ""));
  }
  return fail(ErrorCode::kUnavailable,
              "The connection to the registry " + shown(reference_.host) + " broke too often",
              "Try again: what has arrived is kept.");
}

}  // namespace drupe
