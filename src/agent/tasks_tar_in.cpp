// A tar stream into a directory. Nothing is written outside of it: every path is resolved beneath it by the
// kernel.
#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <vector>

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "agent/sys.h"
#include "agent/tar_read.h"
#include "agent/tasks.h"
#include "agent/tree.h"
#include "base/files.h"
#include "base/unique_fd.h"

namespace drupe::agent {
namespace {

constexpr std::size_t kChunk = 128 * 1024;
// Directories whose times are set at the end; beyond that they get the time of the extraction.
constexpr std::size_t kMaxDirectories = 1'000'000;

/// Slashes and "." components taken away; an error for "..".
Result<std::string> clean_path(const std::string& path) {
  std::string out;
  std::string_view rest = path;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(part.size() == rest.size() ? part.size() : part.size() + 1);
    if (part.empty() || part == ".") continue;
    if (part == "..")
      return fail(ErrorCode::kInvalidArgument,
                  "The archive names \"" + path + "\", which leaves the directory it is unpacked into");
    if (!out.empty()) out += '/';
    out.append(part);
  }
  return out;
}

class Unpacker {
 public:
  Unpacker(const FileOptions& options, UniqueFd top)
      : options_(options), top_(std::move(top)), as_root_(::geteuid() == 0), buffer_(new char[kChunk]) {}

  Status run() {
    TarReader reader([](char* buffer, std::size_t size) -> Result<std::size_t> {
      ssize_t got = 0;
      do got = ::read(STDIN_FILENO, buffer, size);
      while (got < 0 && errno == EINTR);
      if (got < 0) return fail_sys("Receiving the archive failed", errno);
      return static_cast<std::size_t>(got);
    });
    while (true) {
      DRUPE_ASSIGN(const std::optional<TarEntry> entry, reader.next());
      if (!entry) break;
      DRUPE_TRY(unpack(*entry, reader));
    }
    return finish_directories();
  }

 private:
  struct Place {
    UniqueFd parent;
    std::string name;
  };
  struct Later {
    std::string path;
    std::int64_t mtime_ns;
    std::uint32_t mode;
  };

  Result<UniqueFd> open_beneath(const std::string& path, int flags) const {
    open_how how{};
    how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    const auto fd = static_cast<int>(
        ::syscall(SYS_openat2, top_.get(), path.empty() ? "." : path.c_str(), &how, sizeof how));
    if (fd < 0) return file_error("Opening", path, errno);
    return UniqueFd(fd);
  }

  /// The directory that gets the entry, made with its parents when it is missing.
  Result<Place> place_of(const std::string& path) {
    const auto slash = path.rfind('/');
    Place place;
    place.name = slash == std::string::npos ? path : path.substr(slash + 1);
    const std::string parent = slash == std::string::npos ? std::string() : path.substr(0, slash);
    auto opened = open_beneath(parent, O_PATH | O_DIRECTORY);
    if (!opened && opened.error().sys_errno == ENOENT && !parent.empty()) {
      DRUPE_ASSIGN(Place above, place_of(parent));
      ::mkdirat(above.parent.get(), above.name.c_str(), 0755);
      opened = open_beneath(parent, O_PATH | O_DIRECTORY);
    }
    if (!opened) return std::unexpected(std::move(opened).error());
    place.parent = *std::move(opened);
    return place;
  }

  Status unpack(const TarEntry& entry, TarReader& reader) {
    DRUPE_ASSIGN(const std::string path, clean_path(entry.name));
    if (path.empty()) {  // the directory itself: its contents are what is meant
      if (entry.type != 'd')
        return fail(ErrorCode::kInvalidArgument, "The archive has a file without a name");
      return {};
    }
    DRUPE_ASSIGN(const Place place, place_of(path));
    if (entry.type == 'd') return directory(entry, path, place);
    DRUPE_TRY(make_room(place, path));
    switch (entry.type) {
      case 'f':
        return file(entry, path, place, reader);
      case 'h':
        return hard_link(entry, path, place);
      case 'l':
        if (::symlinkat(entry.link.c_str(), place.parent.get(), place.name.c_str()) != 0)
          return file_error("Creating the link", path, errno);
        break;
      default: {
        const mode_t type = entry.type == 'c' ? S_IFCHR : entry.type == 'b' ? S_IFBLK : S_IFIFO;
        if (::mknodat(place.parent.get(), place.name.c_str(), type | 0600,
                      ::makedev(entry.device_major, entry.device_minor)) != 0)
          return file_error("Creating the special file", path, errno);
      }
    }
    return attributes(entry, path, place);
  }

  /// Takes away what has the name, but no directory that is not empty.
  Status make_room(const Place& place, const std::string& path) const {
    if (::unlinkat(place.parent.get(), place.name.c_str(), 0) == 0 || errno == ENOENT) return {};
    // A mounted file, as those of NameFiles are, is written where it is (see file()).
    if (errno == EBUSY) return {};
    if (errno != EISDIR && errno != EPERM) return file_error("Replacing", path, errno);
    if (::unlinkat(place.parent.get(), place.name.c_str(), AT_REMOVEDIR) != 0)
      return file_error("Replacing the directory", path, errno);
    return {};
  }

  Status directory(const TarEntry& entry, const std::string& path, const Place& place) {
    if (::mkdirat(place.parent.get(), place.name.c_str(), 0700) != 0) {
      if (errno != EEXIST) return file_error("Creating the directory", path, errno);
      // A directory behind a link counts, as long as it is beneath.
      if (!open_beneath(path, O_PATH | O_DIRECTORY)) {
        DRUPE_TRY(make_room(place, path));
        if (::mkdirat(place.parent.get(), place.name.c_str(), 0700) != 0)
          return file_error("Creating the directory", path, errno);
      }
    }
    DRUPE_ASSIGN(const UniqueFd made, open_beneath(path, O_RDONLY | O_DIRECTORY));
    DRUPE_TRY(owner(made.get(), "", entry, path));
    // The final mode may shut this process out, and every file made inside changes the time.
    if (::fchmod(made.get(), (entry.mode & 07777) | 0700) != 0)
      return file_error("Setting the mode of", path, errno);
    if (later_.size() < kMaxDirectories) later_.push_back({path, entry.mtime_ns, entry.mode & 07777});
    return {};
  }

  Status file(const TarEntry& entry, const std::string& path, const Place& place, TarReader& reader) {
    UniqueFd fd(::openat(place.parent.get(), place.name.c_str(),
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd.valid() && errno == EEXIST && is_mount_point(place.parent.get(), place.name))
      fd = UniqueFd(::openat(place.parent.get(), place.name.c_str(),
                             O_WRONLY | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!fd.valid()) return file_error("Creating", path, errno);
    for (const auto& extent : entry.extents) DRUPE_TRY(write_extent(fd.get(), path, extent, reader));
    if (entry.sparse && ::ftruncate(fd.get(), static_cast<off_t>(entry.size)) != 0)
      return file_error("Setting the size of", path, errno);
    DRUPE_TRY(owner(fd.get(), "", entry, path));
    if (::fchmod(fd.get(), entry.mode & 07777) != 0) return file_error("Setting the mode of", path, errno);
    const auto times = times_of(entry.mtime_ns);
    ::futimens(fd.get(), times.data());
    return {};
  }

  Status write_extent(int fd, const std::string& path, TarExtent extent, TarReader& reader) const {
    while (extent.length > 0) {
      DRUPE_ASSIGN(const std::size_t got,
                   reader.read(buffer_.get(),
                               static_cast<std::size_t>(std::min<std::uint64_t>(extent.length, kChunk))));
      if (got == 0) return fail(ErrorCode::kIntegrity, "The tar archive is damaged: it ends in the middle");
      if (auto written = pwrite_all(fd, {buffer_.get(), got}, extent.offset); !written)
        return file_error("Writing", path, written.error().sys_errno);
      extent.offset += got;
      extent.length -= got;
    }
    return {};
  }

  Status hard_link(const TarEntry& entry, const std::string& path, const Place& place) {
    DRUPE_ASSIGN(const std::string target, clean_path(entry.link));
    const auto slash = target.rfind('/');
    DRUPE_ASSIGN(const UniqueFd parent,
                 open_beneath(slash == std::string::npos ? std::string() : target.substr(0, slash),
                              O_PATH | O_DIRECTORY));
    const std::string name = slash == std::string::npos ? target : target.substr(slash + 1);
    if (::linkat(parent.get(), name.c_str(), place.parent.get(), place.name.c_str(), 0) != 0)
      return file_error("Creating the hard link", path, errno);
    return {};
  }

  Status attributes(const TarEntry& entry, const std::string& path, const Place& place) {
    DRUPE_TRY(owner(place.parent.get(), place.name.c_str(), entry, path));
    if (entry.type != 'l' && ::fchmodat(place.parent.get(), place.name.c_str(), entry.mode & 07777, 0) != 0)
      return file_error("Setting the mode of", path, errno);
    const auto times = times_of(entry.mtime_ns);
    ::utimensat(place.parent.get(), place.name.c_str(), times.data(), AT_SYMLINK_NOFOLLOW);
    return {};
  }

  /// Root gives files to their owners, as tar does; anyone else keeps them.
  Status owner(int dir, const char* name, const TarEntry& entry, const std::string& path) const {
    if (!as_root_) return {};
    const auto uid = options_.uid >= 0 ? static_cast<uid_t>(options_.uid) : entry.uid;
    const auto gid = options_.gid >= 0 ? static_cast<gid_t>(options_.gid) : entry.gid;
    const int flags = AT_SYMLINK_NOFOLLOW | (*name == '\0' ? AT_EMPTY_PATH : 0);
    if (::fchownat(dir, name, uid, gid, flags) != 0) return file_error("Changing the owner of", path, errno);
    return {};
  }

  static std::array<timespec, 2> times_of(std::int64_t ns) {
    std::int64_t seconds = ns / 1'000'000'000;
    std::int64_t rest = ns % 1'000'000'000;
    if (rest < 0) {
      rest += 1'000'000'000;
      --seconds;
    }
    return {timespec{0, UTIME_NOW}, timespec{seconds, rest}};
  }

  Status finish_directories() {
    for (auto it = later_.rbegin(); it != later_.rend(); ++it) {
      auto dir = open_beneath(it->path, O_RDONLY | O_DIRECTORY);
      if (!dir) continue;  // replaced by a later entry
      const auto times = times_of(it->mtime_ns);
      ::futimens(dir->get(), times.data());
      if (::fchmod(dir->get(), it->mode) != 0) return file_error("Setting the mode of", it->path, errno);
    }
    return {};
  }

  const FileOptions& options_;
  UniqueFd top_;
  bool as_root_;
  std::unique_ptr<char[]> buffer_;
  std::vector<Later> later_;
};

}  // namespace

Result<std::string> tar_in_task(const FileOptions& options) {
  UniqueFd top(::open(options.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!top.valid()) return file_error("Opening the directory", options.path, errno);
  ::umask(0);
  DRUPE_TRY(Unpacker(options, std::move(top)).run());
  // What is behind the archive's end is read as well, so that the sender is not cut off.
  std::array<char, 8192> nobody;
  while (::read(STDIN_FILENO, nobody.data(), nobody.size()) > 0) {
  }
  return std::string();
}

}  // namespace drupe::agent
