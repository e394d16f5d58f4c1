#include "image/build_folder.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/spawn.h"

namespace drupe {
namespace {

constexpr const char* kPrefix = "drupe-build.";

std::string parent_folder() {
  const char* named = std::getenv("TMPDIR");
  return named != nullptr && *named == '/' ? named : "/tmp";
}

/// Its lock, if nobody else has it. Only folders of this very user: the parent is everybody's.
UniqueFd lock_folder(const std::string& path) {
  UniqueFd folder(::openat(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  if (!folder.valid() || ::fstat(folder.get(), &info) != 0 || info.st_uid != ::geteuid()) return UniqueFd();
  if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) return UniqueFd();
  return folder;
}

void sweep(const std::string& parent) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    const UniqueFd lock = lock_folder(entry.path().string());
    if (lock.valid()) remove_build(entry.path().string());
  }
}

}  // namespace

void remove_build(const std::string& path) {
  if (remove_tree(AT_FDCWD, path)) return;
  SpawnRequest request;
  request.program = "/usr/bin/mmdebstrap";
  request.argv = {"mmdebstrap", "--unshare-helper", "rm", "-rf", path};
  request.env = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  if (const auto child = spawn(request)) (void)wait_for(*child);
  // The folder itself is this user's, not a mapped one's.
  (void)remove_tree(AT_FDCWD, path);
}

Result<BuildFolder> BuildFolder::make() {
  const std::string parent = parent_folder();
  sweep(parent);
  std::string path = parent + "/" + kPrefix + "XXXXXX";
  if (::mkdtemp(path.data()) == nullptr)
    return fail_sys("Making a temporary folder in " + parent + " failed", errno);
  UniqueFd lock = lock_folder(path);
  // The mapped root of an unprivileged build must be able to go through.
  if (!lock.valid() || ::fchmod(lock.get(), 0711) != 0) {
    const int err = errno;
    (void)remove_tree(AT_FDCWD, path);
    return fail_sys("Locking the temporary folder " + path + " failed", err);
  }
  return BuildFolder(std::move(path), std::move(lock));
}

BuildFolder::~BuildFolder() {
  if (lock_.valid()) remove_build(path_);
}

}  // namespace drupe
