#include "engine/home.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ids.h"
#include "engine/file_lock.h"

namespace drupe {
namespace {

constexpr const char* kDirectories[] = {"images",   "bases", "kernels", "sandboxes", "names",
                                        "promised", "locks", "tmp",     "cache",     "networks"};
constexpr const char* kScratchLock = "lock";
constexpr std::chrono::seconds kHomeLockWait{30};
/// A directory in tmp/ without a lock file is this old before it counts as garbage: its maker may be about to
/// lock it.
constexpr time_t kUnlockedScratchAge = 60;

/// The longest name below the home is sandboxes/<12>/shim.sock, but that socket is reached through a
/// directory descriptor, so only sanity bounds the path.
constexpr std::size_t kLongestHomePath = 3000;

struct DirCloser {
  void operator()(DIR* stream) const { ::closedir(stream); }
};

Result<std::string> default_path() {
  if (const char* own = std::getenv("DRUPE_HOME"); own != nullptr && *own != '\0') return std::string(own);
  if (const char* data = std::getenv("XDG_DATA_HOME"); data != nullptr && *data == '/')
    return std::string(data) + "/drupe";
  if (const char* user = std::getenv("HOME"); user != nullptr && *user == '/')
    return std::string(user) + "/.local/share/drupe";
  return fail(ErrorCode::kInvalidArgument,
              "There is no place for sandboxes: neither DRUPE_HOME nor HOME is set",
              "Set DRUPE_HOME to a directory of your own.");
}

Status check_directory(int dir, const std::string& path) {
  struct stat found{};
  if (::fstat(dir, &found) != 0) return fail_sys("Looking at " + path + " failed", errno);
  if (found.st_uid != ::geteuid())
    return fail(ErrorCode::kPermission,
                "The home " + path + " belongs to another user (uid " + std::to_string(found.st_uid) + ")",
                "Set DRUPE_HOME to a directory of your own.");
  if ((found.st_mode & 077) != 0 && ::fchmod(dir, 0700) != 0)
    return fail_sys("Closing the home " + path + " to other users failed", errno);
  return {};
}

/// A directory that is no home yet must be an empty one: a slip in DRUPE_HOME closes nobody's folder to
/// others and fills it with ours. What another process is laying out at this moment counts as ours.
Status check_new_home(int dir, const std::string& path) {
  if (::faccessat(dir, "VERSION", F_OK, AT_SYMLINK_NOFOLLOW) == 0) return {};
  const std::unique_ptr<DIR, DirCloser> stream(
      ::fdopendir(::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (!stream) return fail_sys("Reading " + path + " failed", errno);
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    const bool ours = name == "." || name == ".." || name == "lock" || name.starts_with("VERSION") ||
                      name.starts_with(".VERSION") ||
                      std::ranges::find(kDirectories, name) != std::end(kDirectories);
    if (!ours)
      return fail(
          ErrorCode::kInvalidArgument,
          "The directory " + path + " holds other things already, '" + std::string(name) + "' for one",
          "Set DRUPE_HOME to a new or an empty directory.");
  }
  return {};
}

/// Formats before 1 were never released; the next version's migration has its place here.
Status migrate(int dir, int from) {
  if (from == kHomeVersion) return {};
  return replace_file(dir, "VERSION", std::to_string(kHomeVersion) + "\n", Sync::kYes);
}

Result<int> read_version(int dir, const std::string& path) {
  auto text = read_file(dir, "VERSION", 64);
  if (!text) {
    if (text.error().code == ErrorCode::kNotFound) return 0;
    return std::unexpected(std::move(text).error());
  }
  const int version = std::atoi(text->c_str());
  if (version <= 0)
    return fail(ErrorCode::kIntegrity, "The file VERSION of " + path + " is damaged",
                "Write the line 1 into it.");
  if (version > kHomeVersion)
    return fail(ErrorCode::kUnsupported,
                "The home " + path + " was written by a newer drupe (format " + std::to_string(version) +
                    ", this one knows " + std::to_string(kHomeVersion) + ")",
                "Use that version, or set DRUPE_HOME to another directory.");
  return version;
}

Status lay_out(int dir, const std::string& path) {
  DRUPE_ASSIGN(int version, read_version(dir, path));
  for (const char* name : kDirectories)
    if (::mkdirat(dir, name, 0700) != 0 && errno != EEXIST)
      return fail_sys("Creating the directory " + path + "/" + name + " failed", errno);
  if (version == kHomeVersion) return {};
  DRUPE_ASSIGN(const UniqueFd lock, lock_file(dir, "lock", Clock::now() + kHomeLockWait, "the home"));
  DRUPE_ASSIGN(version, read_version(dir, path));
  if (version == kHomeVersion) return {};
  return migrate(dir, version);
}

}  // namespace

std::unexpected<Error> no_sandbox(std::string_view id_or_name) {
  return fail(ErrorCode::kNotFound, "There is no sandbox " + std::string(id_or_name),
              "drupe ps -a lists all sandboxes.");
}

bool is_sandbox_id(std::string_view text) {
  return text.size() == 12 &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Result<Home> Home::open(const std::string& given) {
  std::string path = given;
  if (path.empty()) {
    DRUPE_ASSIGN(path, default_path());
  }
  if (path.size() > kLongestHomePath)
    return fail(ErrorCode::kInvalidArgument, "The path of the home is too long");
  auto dir = open_at(AT_FDCWD, path, O_DIRECTORY | O_RDONLY);
  if (!dir && dir.error().code == ErrorCode::kNotFound) {
    DRUPE_TRY(make_dirs(path));
    dir = open_at(AT_FDCWD, path, O_DIRECTORY | O_RDONLY);
  }
  if (!dir) return std::unexpected(std::move(dir).error().in("The home cannot be used"));
  DRUPE_TRY(check_new_home(dir->get(), path));
  DRUPE_TRY(check_directory(dir->get(), path));
  DRUPE_TRY(lay_out(dir->get(), path));
  return Home(std::move(*dir), std::move(path));
}

Result<UniqueFd> Home::lock() const {
  return lock_file(dir(), "lock", Clock::now() + kHomeLockWait, "the home's lock");
}

Result<UniqueFd> Home::open_sandbox(const std::string& id) const {
  auto opened = open_at(dir(), sandbox(id), O_DIRECTORY | O_RDONLY | O_NOFOLLOW);
  if (!opened && opened.error().code == ErrorCode::kNotFound) return no_sandbox(id);
  return opened;
}

Result<std::vector<std::string>> Home::names_in(const std::string& directory) const {
  std::vector<std::string> names;
  auto opened = open_at(dir(), directory, O_DIRECTORY | O_RDONLY | O_NOFOLLOW);
  if (!opened) {
    if (opened.error().code == ErrorCode::kNotFound) return names;
    return std::unexpected(std::move(opened).error());
  }
  const std::unique_ptr<DIR, DirCloser> stream(::fdopendir(opened->get()));
  if (!stream) return fail_sys("Listing " + directory + " failed", errno);
  static_cast<void>(opened->release());
  while (const dirent* entry = ::readdir(stream.get()))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  std::ranges::sort(names);
  return names;
}

Result<std::vector<std::string>> Home::sandbox_ids() const {
  DRUPE_ASSIGN(std::vector<std::string> names, names_in("sandboxes"));
  std::erase_if(names, [](const std::string& name) { return !is_sandbox_id(name); });
  return names;
}

Result<Home::Scratch> Home::make_scratch(std::string_view prefix) const {
  // Between its making and its lock a sweep may take the directory for a leftover.
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    Scratch scratch;
    scratch.path = "tmp/" + std::string(prefix) + "-" + random_id();
    DRUPE_ASSIGN(scratch.dir, make_dir_at(dir(), scratch.path));
    auto lock = try_lock(scratch.dir.get(), kScratchLock);
    if (!lock && lock.error().code == ErrorCode::kNotFound) continue;
    if (!lock) return std::unexpected(std::move(lock).error());
    struct stat now{};
    // Locked, but perhaps after the sweep had begun to remove it.
    if (!lock->valid() || ::fstat(scratch.dir.get(), &now) != 0 || now.st_nlink == 0) continue;
    scratch.lock = std::move(*lock);
    return scratch;
  }
  return fail(ErrorCode::kBusy, "No directory for new files could be kept in " + path(), "Try again.");
}

Result<std::string> Home::set_aside(const std::string& path) const {
  std::string gone = "tmp/gone-" + random_id();
  if (::renameat(dir(), path.c_str(), dir(), gone.c_str()) == 0) return gone;
  if (errno == ENOENT) return std::string();
  return fail_sys("Removing " + path + " failed", errno);
}

Status Home::remove_set_aside(const std::string& path) const {
  if (path.empty()) return {};
  return remove_tree(dir(), path);
}

Status Home::discard(const std::string& path) const {
  DRUPE_ASSIGN(const std::string gone, set_aside(path));
  return remove_set_aside(gone);
}

std::uint32_t Home::sweep_scratch() const {
  const auto names = names_in("tmp");
  if (!names) return 0;
  std::uint32_t swept = 0;
  for (const std::string& name : *names) {
    const std::string path = "tmp/" + name;
    const std::string lock_path = path + "/" + kScratchLock;
    struct stat found{};
    if (::fstatat(dir(), path.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) continue;
    struct stat lock_found{};
    const bool has_lock = ::fstatat(dir(), lock_path.c_str(), &lock_found, AT_SYMLINK_NOFOLLOW) == 0;
    const bool gone = name.starts_with("gone-");
    UniqueFd own;
    if (has_lock) {
      // Its own, and not only looked at: whoever is about to lock it then knows that it goes.
      auto lock = try_lock(dir(), lock_path);
      if (!lock || !lock->valid()) continue;
      own = std::move(*lock);
    } else if (!gone && ::time(nullptr) - found.st_mtime < kUnlockedScratchAge) {
      continue;
    }
    // A "gone-" directory may be in removal by its owner at this moment; both then remove it, which is
    // harmless.
    if (remove_tree(dir(), path)) ++swept;
  }
  return swept;
}

}  // namespace drupe
