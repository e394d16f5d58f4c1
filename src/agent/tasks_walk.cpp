// Listing a directory and walking a tree.
#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "agent/ignore.h"
#include "agent/tasks.h"
#include "agent/tree.h"
#include "base/unique_fd.h"

namespace drupe::agent {
namespace {

constexpr std::size_t kContentChunk = 32 * 1024;
// Longest name in a record, so that a record never exceeds its bound.
constexpr std::size_t kMaxName = 16 * 1024;
// f_type of file systems that are views of the kernel: proc, sysfs, cgroup2, devpts, securityfs, debugfs,
// tracefs.
constexpr std::array<std::uint64_t, 7> kViews{0x9fa0,     0x62656572, 0x63677270, 0x1cd1,
                                              0x73636673, 0x64626720, 0x74726163};

class Walk {
 public:
  explicit Walk(const FileOptions& options) : options_(options), ignore_(options.ignore) {}

  Status run() {
    const UniqueFd top(::open(options_.path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    struct stat info{};
    if (!top.valid() || ::fstat(top.get(), &info) != 0) return file_error("Opening", options_.path, errno);
    if (S_ISDIR(info.st_mode)) {
      DRUPE_TRY(directory(top.get(), "", info.st_dev, 0));
    } else {
      emit(AT_FDCWD, options_.path, "", info);
    }
    out_.flush();
    return {};
  }

 private:
  Status directory(int dir, const std::string& path, dev_t device, int depth) {
    return each_name(dir, path, [&](const std::string& name) -> Status {
      const std::string relative = path.empty() ? name : path + "/" + name;
      struct stat info{};
      if (relative.size() > kMaxName) {
        problem(relative.substr(0, kMaxName), ENAMETOOLONG);
        return {};
      }
      if (::fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT) problem(relative, errno);
        return {};
      }
      const bool is_directory = S_ISDIR(info.st_mode);
      if (ignore_.ignores(relative, is_directory)) return {};
      emit(dir, name, relative, info);
      if (is_directory) enter(dir, name, relative, device, depth);
      return {};
    });
  }

  void enter(int dir, const std::string& name, const std::string& relative, dev_t device, int depth) {
    if (depth >= kMaxTreeDepth) return problem(relative, ELOOP);
    const UniqueFd below(::openat(dir, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!below.valid()) return problem(relative, errno);
    struct stat info{};
    struct statfs fs{};
    if (::fstat(below.get(), &info) != 0) return problem(relative, errno);
    if (info.st_dev != device && ::fstatfs(below.get(), &fs) == 0 &&
        std::find(kViews.begin(), kViews.end(), static_cast<std::uint64_t>(fs.f_type)) != kViews.end())
      return;
    // What cannot be listed is reported, and the walk goes on.
    if (auto walked = directory(below.get(), relative, info.st_dev, depth + 1); !walked)
      problem(relative, walked.error().sys_errno);
  }

  void emit(int dir, const std::string& name, const std::string& relative, const struct stat& info) {
    StatResult stat = to_stat(relative, info);
    if (stat.type == 'l') stat.link_target = read_link(dir, name);
    out_.record(RecordKind::kEntry, encode_stat(stat));
    if (options_.contents && stat.type == 'f') content(dir, name, relative);
  }

  void content(int dir, const std::string& name, const std::string& relative) {
    const int follow = relative.empty() ? 0 : O_NOFOLLOW;
    const UniqueFd file(::openat(dir, name.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | follow));
    if (!file.valid()) return problem(relative, errno);
    const std::uint64_t limit = options_.length == 0 ? ~std::uint64_t{0} : options_.length;
    std::array<char, kContentChunk> chunk;
    std::uint64_t sent = 0;
    while (true) {
      const ssize_t got = ::read(file.get(), chunk.data(), chunk.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return problem(relative, errno);
      const std::uint64_t size = std::min(static_cast<std::uint64_t>(got), limit - sent);
      if (size != 0) out_.record(RecordKind::kContent, {chunk.data(), static_cast<std::size_t>(size)});
      sent += size;
      const bool more = size < static_cast<std::uint64_t>(got);
      if (got == 0 || more)
        return out_.record(RecordKind::kContentEnd, more ? "\1" : std::string_view("\0", 1));
    }
  }

  void problem(const std::string& relative, int err) {
    out_.record(RecordKind::kProblem,
                ByteWriter().text(relative).number(static_cast<std::int32_t>(err)).take());
  }

  const FileOptions& options_;
  IgnoreRules ignore_;
  Output out_;
};

}  // namespace

Result<std::string> list_task(const FileOptions& options) {
  const UniqueFd dir(::open(options.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir.valid()) return file_error("Opening the directory", options.path, errno);
  Output out;
  DRUPE_TRY(each_name(dir.get(), options.path, [&](const std::string& name) -> Status {
    struct stat info{};
    if (::fstatat(dir.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
      return errno == ENOENT ? Status() : file_error("Looking at", name, errno);
    StatResult stat = to_stat(name, info);
    if (stat.type == 'l') stat.link_target = read_link(dir.get(), name);
    out.record(RecordKind::kEntry, encode_stat(stat));
    return {};
  }));
  out.flush();
  return std::string();
}

Result<std::string> walk_task(const FileOptions& options) {
  DRUPE_TRY(Walk(options).run());
  return std::string();
}

}  // namespace drupe::agent
