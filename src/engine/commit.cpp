#include "engine/commit.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "engine/file_lock.h"
#include "engine/sandbox_files.h"
#include "engine/sparse_copy.h"
#include "hypervisor/qcow2.h"
#include "image/import_disk.h"

namespace drupe {
namespace {

/// What an image may hold, as with images from elsewhere.
constexpr std::uint64_t kMostBytes = std::uint64_t{20} << 30;
/// A shim that has just been stopped lets go of its lock within this.
constexpr std::chrono::seconds kLockWait{30};

/// The whole disk of the chain in `dir` as one raw file.
Status write_flat(int dir, const SandboxRecord& record, int out) {
  const auto& chain = record.disk_chain;
  if (chain.empty()) return fail(ErrorCode::kIntegrity, "The sandbox has no disk");
  DRUPE_ASSIGN(const UniqueFd image, open_at(dir, chain.front(), O_RDONLY | O_NOFOLLOW));
  struct stat info{};
  if (::fstat(image.get(), &info) != 0) return fail_sys("Looking at the sandbox's disk failed", errno);
  DRUPE_TRY(copy_data(image.get(), out, info.st_size));
  const auto bytes = static_cast<off_t>(record.disk_bytes);
  if (bytes > info.st_size && ::ftruncate(out, bytes) != 0)
    return fail_sys("Making room for the image's disk failed", errno);
  for (std::size_t i = 1; i < chain.size(); ++i) {
    DRUPE_ASSIGN(const UniqueFd node, open_at(dir, chain[i], O_RDONLY | O_NOFOLLOW));
    DRUPE_TRY(apply_qcow2(node.get(), out, kMostBytes));
  }
  return {};
}

}  // namespace

Result<Image> commit_sandbox(Engine& engine, const std::string& id, const ImageConfig& config,
                             const std::vector<std::string>& names) {
  DRUPE_ASSIGN(const UniqueFd dir, engine.open_directory(id));
  DRUPE_ASSIGN(const UniqueFd lock, lock_file(dir.get(), kLockFile, Clock::now() + kLockWait, "the sandbox"));
  DRUPE_ASSIGN(const SandboxRecord record, read_own_record(dir.get(), id));
  if (record.state != SandboxState::kExited ||
      (record.cause != EndCause::kStopped && record.cause != EndCause::kFinished))
    return fail(ErrorCode::kInvalidState, "A sandbox that is " + std::string(to_string(record.state)) +
                                              " and was not stopped cannot become an image");
  return import_disk(
      engine.home() + "/images", [&](int fd) { return write_flat(dir.get(), record, fd); }, config, names);
}

}  // namespace drupe
