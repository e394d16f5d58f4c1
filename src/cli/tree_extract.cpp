#include "cli/tree_extract.h"

#include <array>
#include <cerrno>
#include <set>
#include <vector>

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/files.h"
#include "base/tar_decode.h"

namespace drupe::cli {
namespace {

constexpr std::size_t kChunk = 256 * 1024;
constexpr std::size_t kMaxPath = 4096;
constexpr std::size_t kMaxRemembered = 256U << 20;  // Bytes, of names that hard links may name.
constexpr std::size_t kNodeBytes = 80;              // What a set keeps beside a name, about.
constexpr std::size_t kMaxFolders = 1'000'000;      // Whose times are set at the end.

timespec to_timespec(std::int64_t nanoseconds) {
  constexpr std::int64_t kGiga = 1'000'000'000;
  std::int64_t seconds = nanoseconds / kGiga;
  std::int64_t rest = nanoseconds % kGiga;
  if (rest < 0) {
    rest += kGiga;
    --seconds;
  }
  return {seconds, rest};
}

std::unexpected<Error> refused(const std::string& name, std::string_view why) {
  return fail(
      ErrorCode::kGuest, "The sandbox sent '" + name + "', which is refused: " + std::string(why),
      "Nothing outside of the target was touched; copy single files, or a tar stream with '-' as the target");
}

/// A name in two parts: where it is, and what it is called there.
struct Place {
  std::string parent;  ///< "" for the target itself.
  std::string leaf;
};

class Extractor {
 public:
  Extractor(int target, const ExtractOptions& options, const std::function<void(std::string_view)>& on_skip)
      : target_(target), options_(options), on_skip_(on_skip) {}

  Status on_entry(const TarEntry& entry);
  Status on_data(std::uint64_t offset, ByteView bytes);
  Status on_entry_end();
  Status finish_folders();

 private:
  Result<std::string> renamed(const std::string& name) const;
  Result<UniqueFd> open_beneath(const std::string& path, const std::string& name) const;
  Status make(const TarEntry& entry, const std::string& path);
  Status make_folder(const UniqueFd& parent, const std::string& leaf, const std::string& path,
                     const TarEntry& entry);
  Status make_hard_link(const UniqueFd& parent, const std::string& leaf, const TarEntry& entry) const;
  Status set_owner(int parent, const std::string& leaf, const TarEntry& entry) const;

  int target_;
  const ExtractOptions& options_;
  const std::function<void(std::string_view)>& on_skip_;
  void remember(const std::string& path);

  std::set<std::string> files_;  ///< Made by this stream: what hard links may name.
  std::size_t remembered_bytes_ = 0;
  struct Folder {
    std::string path;
    std::uint32_t mode;
    std::int64_t mtime_ns;
  };
  std::vector<Folder> folders_;
  UniqueFd file_;  ///< The regular file that is being written.
  TarEntry current_;
};

/// Splits into components, refusing what could leave the target; "" for the target itself.
Result<std::string> clean(const std::string& name) {
  if (name.size() > kMaxPath)
    return refused(name.substr(0, 64) + "...", "its name is longer than 4096 bytes");
  if (name.starts_with('/')) return refused(name, "its name begins with '/'");
  std::string out;
  std::size_t start = 0;
  while (start <= name.size()) {
    const std::size_t end = std::min(name.find('/', start), name.size());
    const std::string part = name.substr(start, end - start);
    start = end + 1;
    if (part == "..") return refused(name, "its name holds '..'");
    if (part.empty() || part == ".") continue;
    out += (out.empty() ? "" : "/") + part;
  }
  return out;
}

Place split(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

Result<std::string> Extractor::renamed(const std::string& name) const {
  DRUPE_ASSIGN(std::string path, clean(name));
  if (options_.drop_first) {
    const auto slash = path.find('/');
    path = slash == std::string::npos ? "" : path.substr(slash + 1);
  }
  if (options_.prefix.empty()) return path;
  return path.empty() ? options_.prefix : options_.prefix + "/" + path;
}

Result<UniqueFd> Extractor::open_beneath(const std::string& path, const std::string& name) const {
  open_how how{};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  UniqueFd fd(
      static_cast<int>(::syscall(SYS_openat2, target_, path.empty() ? "." : path.c_str(), &how, sizeof how)));
  if (fd.valid()) return fd;
  if (errno == ELOOP || errno == EXDEV || errno == ENOTDIR)
    return refused(name, "a symbolic link, a mount or something else that is no folder is in its way");
  return fail_sys("Opening the folder of " + name + " failed", errno);
}

Status Extractor::set_owner(int parent, const std::string& leaf, const TarEntry& entry) const {
  if (!options_.keep_owner) return {};
  if (::fchownat(parent, leaf.c_str(), entry.uid, entry.gid, AT_SYMLINK_NOFOLLOW) != 0)
    return fail_sys("Setting the owner of " + entry.name + " failed", errno);
  return {};
}

Status Extractor::make_folder(const UniqueFd& parent, const std::string& leaf, const std::string& path,
                              const TarEntry& entry) {
  if (::mkdirat(parent.get(), leaf.c_str(), 0700) != 0) {
    struct stat status{};
    const int err = errno;
    const bool is_folder = err == EEXIST &&
                           ::fstatat(parent.get(), leaf.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                           S_ISDIR(status.st_mode);
    if (err == EEXIST && !is_folder)
      return refused(entry.name, "something that is no folder has its name already");
    if (err != EEXIST) return fail_sys("Making the folder " + entry.name + " failed", err);
  }
  DRUPE_TRY(set_owner(parent.get(), leaf, entry));
  if (folders_.size() >= kMaxFolders)
    return fail(ErrorCode::kLimit, "The sandbox sent more than a million folders");
  folders_.push_back({path, entry.mode & 0777U, entry.mtime_ns});
  return {};
}

Status Extractor::make_hard_link(const UniqueFd& parent, const std::string& leaf,
                                 const TarEntry& entry) const {
  DRUPE_ASSIGN(const std::string target, renamed(entry.link));
  if (!files_.contains(target) && remembered_bytes_ >= kMaxRemembered)
    return refused(entry.name,
                   "it is a hard link, and the sandbox has sent more names than can be remembered");
  if (!files_.contains(target))
    return refused(entry.name, "it is a hard link to '" + entry.link + "', which was not sent before it");
  const Place place = split(target);
  DRUPE_ASSIGN(const UniqueFd folder, open_beneath(place.parent, entry.link));
  // Without AT_SYMLINK_FOLLOW a link put there meanwhile is linked itself, not what it names.
  if (::linkat(folder.get(), place.leaf.c_str(), parent.get(), leaf.c_str(), 0) != 0)
    return fail_sys("Making the hard link " + entry.name + " failed", errno);
  return {};
}

// Bounded: a hostile sandbox can send names without end.
void Extractor::remember(const std::string& path) {
  if (remembered_bytes_ >= kMaxRemembered) return;
  if (files_.insert(path).second) remembered_bytes_ += path.size() + kNodeBytes;
}

Status Extractor::make(const TarEntry& entry, const std::string& path) {
  const Place place = split(path);
  DRUPE_ASSIGN(const UniqueFd parent, open_beneath(place.parent, entry.name));
  const char* leaf = place.leaf.c_str();
  if (entry.type == 'd') return make_folder(parent, place.leaf, path, entry);
  if (entry.type == 'c' || entry.type == 'b') {
    on_skip_("'" + entry.name + "' is a device node and was left out");
    return {};
  }
  if (::unlinkat(parent.get(), leaf, 0) != 0 && errno != ENOENT) {
    if (errno == EISDIR || errno == EPERM) return refused(entry.name, "a folder has its name already");
    return fail_sys("Replacing " + entry.name + " failed", errno);
  }
  if (entry.type == 'h') return make_hard_link(parent, place.leaf, entry);
  if (entry.type == 'l') {
    if (::symlinkat(entry.link.c_str(), parent.get(), leaf) != 0)
      return fail_sys("Making the link " + entry.name + " failed", errno);
  } else if (entry.type == 'p') {
    if (::mkfifoat(parent.get(), leaf, entry.mode & 0777U) != 0)
      return fail_sys("Making the pipe " + entry.name + " failed", errno);
  } else {
    DRUPE_ASSIGN(file_, open_at(parent.get(), place.leaf, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
    remember(path);
    return set_owner(parent.get(), place.leaf, entry);
  }
  DRUPE_TRY(set_owner(parent.get(), place.leaf, entry));
  const std::array times{timespec{0, UTIME_OMIT}, to_timespec(entry.mtime_ns)};
  ::utimensat(parent.get(), leaf, times.data(), AT_SYMLINK_NOFOLLOW);
  return {};
}

Status Extractor::on_entry(const TarEntry& entry) {
  file_.reset();
  current_ = entry;
  DRUPE_ASSIGN(const std::string path, renamed(entry.name));
  if (path.empty()) {  // The target itself, which is there.
    if (entry.type == 'd') return {};
    return refused(entry.name, "it has no name in the target");
  }
  return make(entry, path);
}

Status Extractor::on_data(std::uint64_t offset, ByteView bytes) {
  if (!file_.valid()) return {};
  return pwrite_all(file_.get(), as_text(bytes), offset);
}

Status Extractor::on_entry_end() {
  if (!file_.valid()) return {};
  if (current_.sparse && ::ftruncate(file_.get(), static_cast<off_t>(current_.size)) != 0)
    return fail_sys("Setting the size of " + current_.name + " failed", errno);
  const std::array times{timespec{0, UTIME_OMIT}, to_timespec(current_.mtime_ns)};
  if (::fchmod(file_.get(), current_.mode & 0777U) != 0 || ::futimens(file_.get(), times.data()) != 0)
    return fail_sys("Setting mode and time of " + current_.name + " failed", errno);
  file_.reset();
  return {};
}

Status Extractor::finish_folders() {
  for (auto folder = folders_.rbegin(); folder != folders_.rend(); ++folder) {
    DRUPE_ASSIGN(const UniqueFd fd, open_beneath(folder->path, folder->path));
    const std::array times{timespec{0, UTIME_OMIT}, to_timespec(folder->mtime_ns)};
    if (::fchmod(fd.get(), folder->mode) != 0 || ::futimens(fd.get(), times.data()) != 0)
      return fail_sys("Setting mode and time of " + folder->path + " failed", errno);
  }
  return {};
}

}  // namespace

Status extract_tree(ByteSource& tar, const UniqueFd& target, const ExtractOptions& options,
                    const std::function<void(std::string_view)>& on_skip) {
  Extractor extractor(target.get(), options, on_skip);
  TarDecoder decoder({[&](const TarEntry& entry) { return extractor.on_entry(entry); },
                      [&](std::uint64_t offset, ByteView bytes) { return extractor.on_data(offset, bytes); },
                      [&] { return extractor.on_entry_end(); }});
  std::vector<std::uint8_t> buffer(kChunk);
  while (true) {
    DRUPE_ASSIGN(const std::size_t count, tar.read(buffer));
    if (count == 0) break;
    DRUPE_TRY(decoder.feed(ByteView(buffer).first(count)));
  }
  DRUPE_TRY(decoder.finish());
  return extractor.finish_folders();
}

}  // namespace drupe::cli
