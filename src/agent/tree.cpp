#include "agent/tree.h"

#include <cerrno>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "agent/tasks.h"
#include "base/unique_fd.h"

namespace drupe::agent {
namespace {

using Visit = std::function<Status(int, const std::string&, const struct stat&)>;

std::unexpected<Error> too_deep(const std::string& path) {
  return fail(ErrorCode::kLimit, "The tree below \"" + path + "\" is nested too deeply",
              "Use a command in the sandbox for it");
}

Status visit_tree(int dir, const std::string& name, const Visit& visit, int depth) {
  struct stat info{};
  if (::fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT && depth > 0 ? Status() : file_error("Looking at", name, errno);
  DRUPE_TRY(visit(dir, name, info));
  if (!S_ISDIR(info.st_mode)) return {};
  if (depth >= kMaxTreeDepth) return too_deep(name);
  const UniqueFd below(::openat(dir, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!below.valid()) return errno == ENOENT ? Status() : file_error("Opening", name, errno);
  return each_name(below.get(), name, [&](const std::string& child) {
    return visit_tree(below.get(), child, visit, depth + 1);
  });
}

Status remove_below(int dir, const std::string& name, int depth) {
  if (::unlinkat(dir, name.c_str(), 0) == 0 || errno == ENOENT) return {};
  if (errno != EISDIR && errno != EPERM) return file_error("Removing", name, errno);
  if (depth >= kMaxTreeDepth) return too_deep(name);
  {
    const UniqueFd below(::openat(dir, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!below.valid()) return errno == ENOENT ? Status() : file_error("Opening", name, errno);
    DRUPE_TRY(each_name(below.get(), name, [&](const std::string& child) {
      return remove_below(below.get(), child, depth + 1);
    }));
  }
  if (::unlinkat(dir, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
    return file_error("Removing the directory", name, errno);
  return {};
}

}  // namespace

Status each_name(int dir, const std::string& path,
                 const std::function<Status(const std::string& name)>& use) {
  const int own = ::fcntl(dir, F_DUPFD_CLOEXEC, 0);
  DIR* stream = own < 0 ? nullptr : ::fdopendir(own);
  if (stream == nullptr) return file_error("Listing", path, errno);
  Status done;
  errno = 0;
  while (done) {
    const dirent* entry = ::readdir(stream);
    if (entry == nullptr) {
      if (errno != 0) done = file_error("Listing", path, errno);
      break;
    }
    const std::string name = entry->d_name;
    if (name != "." && name != "..") done = use(name);
    errno = 0;
  }
  ::closedir(stream);
  return done;
}

Status each_in_tree(const std::string& path, const Visit& visit) {
  return visit_tree(AT_FDCWD, path, visit, 0);
}

Status remove_whole_tree(const std::string& path) {
  return remove_below(AT_FDCWD, path, 0);
}

}  // namespace drupe::agent
