#include "engine/file_lock.h"

#include <algorithm>
#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

namespace drupe {
namespace {

constexpr std::chrono::milliseconds kLongestWait{20};

/// A lock on a file that has been unlinked meanwhile protects nothing.
bool still_linked(DirFd dir, const std::string& path, int fd) {
  struct stat open_file{};
  struct stat named{};
  return ::fstat(fd, &open_file) == 0 && ::fstatat(dir, path.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

int flock_once(int fd, int operation) {
  int status = -1;
  do status = ::flock(fd, operation);
  while (status != 0 && errno == EINTR);
  return status;
}

}  // namespace

Result<UniqueFd> try_lock(DirFd dir, const std::string& path) {
  while (true) {
    DRUPE_ASSIGN(UniqueFd fd, open_at(dir, path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
    if (flock_once(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return UniqueFd();
      return fail_sys("Locking " + path + " failed", errno);
    }
    if (still_linked(dir, path, fd.get())) return fd;
  }
}

Result<UniqueFd> lock_file(DirFd dir, const std::string& path, Deadline deadline, std::string_view what) {
  // flock() cannot wait with a deadline, and a signal for it would be the embedding program's: ask again,
  // more and more slowly. Locks over the home are held for microseconds, so the first tries decide.
  auto pause = std::chrono::milliseconds(1);
  while (true) {
    DRUPE_ASSIGN(UniqueFd fd, try_lock(dir, path));
    if (fd.valid()) return fd;
    if (Clock::now() >= deadline)
      return fail(ErrorCode::kBusy, "Another process holds " + std::string(what) + " for too long",
                  "Try again, or look for a drupe process that hangs.");
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestWait);
  }
}

Result<bool> is_locked(DirFd dir, const std::string& path) {
  auto fd = open_at(dir, path, O_RDWR | O_NOFOLLOW);
  if (!fd) {
    if (fd.error().code == ErrorCode::kNotFound) return false;
    return std::unexpected(std::move(fd).error());
  }
  if (flock_once(fd->get(), LOCK_SH | LOCK_NB) == 0) return false;
  if (errno == EWOULDBLOCK) return true;
  return fail_sys("Asking for the lock of " + path + " failed", errno);
}

}  // namespace drupe
