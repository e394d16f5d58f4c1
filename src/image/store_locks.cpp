// Locks, scratch directories and blobs of the image store. All locks are flock() on open files, so a killed
// process leaves none behind.
#include <cerrno>
#include <chrono>
#include <ctime>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ids.h"
#include "image/store_files.h"

namespace drupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLongestChange{60};
constexpr std::chrono::milliseconds kStep{20};
constexpr std::time_t kKeepPartialSeconds = 24 * 60 * 60;

bool try_flock(int fd, int operation) {
  int status = -1;
  do status = ::flock(fd, operation | LOCK_NB);
  while (status != 0 && errno == EINTR);
  return status == 0;
}

/// A lock on a file that was unlinked meanwhile protects nothing.
bool is_linked(DirFd dir, const std::string& path, int fd) {
  struct stat open_file{};
  struct stat named{};
  return ::fstat(fd, &open_file) == 0 && ::fstatat(dir, path.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

/// One try; the descriptor is invalid when somebody else holds it.
Result<UniqueFd> try_lock_file(DirFd dir, const std::string& path) {
  while (true) {
    DRUPE_ASSIGN(UniqueFd fd, open_at(dir, path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
    if (!try_flock(fd.get(), LOCK_EX)) return UniqueFd();
    if (is_linked(dir, path, fd.get())) return fd;
  }
}

}  // namespace

Result<UniqueFd> StoreFiles::lock() const {
  const auto deadline = Clock::now() + kLongestChange;
  auto step = std::chrono::milliseconds(1);
  while (true) {
    DRUPE_ASSIGN(UniqueFd fd, try_lock_file(dir(), "locks/lock"));
    if (fd.valid()) return fd;
    if (Clock::now() > deadline)
      return fail(ErrorCode::kBusy, "Another process holds the image store for too long",
                  "Try again, or look for a drupe process that hangs.");
    std::this_thread::sleep_for(step);
    step = std::min(step * 2, kStep);
  }
}

Result<UniqueFd> StoreFiles::lock_work(const std::string& name, CancelFlag cancel,
                                       const std::function<void()>& on_wait) const {
  for (bool first = true;; first = false) {
    DRUPE_ASSIGN(UniqueFd fd, try_lock_file(dir(), "locks/" + name));
    if (fd.valid()) return fd;
    if (cancelled(cancel)) return fail(ErrorCode::kCancelled, "The operation was stopped");
    if (first && on_wait) on_wait();
    std::this_thread::sleep_for(kStep);
  }
}

void StoreFiles::unlock_work(const std::string& name, UniqueFd lock) const {
  ::unlinkat(dir(), ("locks/" + name).c_str(), 0);
  lock.reset();
}

Result<StoreFiles::Scratch> StoreFiles::make_scratch() const {
  // Under the store's lock no sweeper can meet the directory before it is locked.
  DRUPE_ASSIGN(const UniqueFd held, lock());
  Scratch scratch{"tmp/" + random_id(), {}};
  DRUPE_ASSIGN(scratch.dir, make_dir_at(dir(), scratch.path));
  if (!try_flock(scratch.dir.get(), LOCK_EX))
    return fail_sys("Locking a scratch directory of the image store failed", errno);
  return scratch;
}

void StoreFiles::discard(Scratch scratch) const {
  static_cast<void>(remove_tree(dir(), scratch.path));
}

Result<UniqueFd> StoreFiles::open_blob(const std::string& digest, std::uint64_t size, CancelFlag cancel,
                                       const std::function<void()>& on_wait) const {
  const std::string path = "blobs/" + digest;
  for (bool first = true;; first = false) {
    DRUPE_ASSIGN(UniqueFd fd, open_at(dir(), path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
    const bool exclusive = try_flock(fd.get(), LOCK_EX);
    if (exclusive || try_flock(fd.get(), LOCK_SH)) {
      struct stat info{};
      const bool complete = ::fstat(fd.get(), &info) == 0 && static_cast<std::uint64_t>(info.st_size) == size;
      // A complete blob serves even when its name is gone already.
      if (complete || (exclusive && is_linked(dir(), path, fd.get()))) return fd;
      if (exclusive) continue;
    }
    if (cancelled(cancel)) return fail(ErrorCode::kCancelled, "The operation was stopped");
    if (first && on_wait) on_wait();
    std::this_thread::sleep_for(kStep);
  }
}

void StoreFiles::share_blob(int fd) {
  static_cast<void>(::flock(fd, LOCK_SH));
}

bool StoreFiles::is_empty_blob(const std::string& digest) const {
  struct stat info{};
  return ::fstatat(dir(), ("blobs/" + digest).c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_size == 0;
}

void StoreFiles::drop_blob(const std::string& digest) const {
  ::unlinkat(dir(), ("blobs/" + digest).c_str(), 0);
}

void StoreFiles::sweep() const {
  for (const auto& name : list_folder(dir(), "tmp").value_or(std::vector<std::string>())) {
    const auto fd = open_at(dir(), "tmp/" + name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (fd && try_flock(fd->get(), LOCK_EX)) static_cast<void>(remove_tree(dir(), "tmp/" + name));
  }
  const std::time_t now = std::time(nullptr);
  for (const auto& name : list_folder(dir(), "blobs").value_or(std::vector<std::string>())) {
    const auto fd = open_at(dir(), "blobs/" + name, O_RDWR | O_NOFOLLOW);
    struct stat info{};
    if (fd && try_flock(fd->get(), LOCK_EX) && ::fstat(fd->get(), &info) == 0 &&
        now - info.st_mtime > kKeepPartialSeconds)
      drop_blob(name);
  }
}

}  // namespace drupe
