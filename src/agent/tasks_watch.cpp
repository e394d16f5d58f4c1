// Watching a file or a tree for changes.
#include <cerrno>
#include <map>
#include <string>

#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "agent/tasks.h"
#include "agent/tree.h"
#include "base/unique_fd.h"

namespace drupe::agent {
namespace {

constexpr std::uint32_t kMask = IN_CREATE | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
                                IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_DONT_FOLLOW | IN_EXCL_UNLINK;
constexpr std::size_t kMaxWatches = 8192;

class Watcher {
 public:
  Watcher(const FileOptions& options, UniqueFd inotify) : options_(options), inotify_(std::move(inotify)) {}

  Status run() {
    DRUPE_TRY(add(""));
    if (options_.recursive) add_below("");
    // The caller knows from this that nothing after it is missed.
    emit({'o', true, 0, ""});
    out_.flush();
    alignas(inotify_event) char bytes[16384];
    while (true) {
      const ssize_t got = ::read(inotify_.get(), bytes, sizeof bytes);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return file_error("Watching", options_.path, errno);
      for (ssize_t at = 0; at < got;) {
        const auto* event = reinterpret_cast<const inotify_event*>(bytes + at);
        if (!handle(*event)) return {};
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      }
      out_.flush();
    }
  }

 private:
  Status add(const std::string& relative) {
    const std::string path = relative.empty() ? options_.path : options_.path + "/" + relative;
    const int id = ::inotify_add_watch(inotify_.get(), path.c_str(), kMask);
    if (id < 0) return file_error("Watching", path, errno);
    names_[id] = relative;
    return {};
  }

  /// Best effort: what cannot be watched is told as lost events.
  void add_below(const std::string& relative) {
    const std::string path = relative.empty() ? options_.path : options_.path + "/" + relative;
    const UniqueFd dir(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!dir.valid()) return;
    [[maybe_unused]] const auto listed = each_name(dir.get(), path, [&](const std::string& name) -> Status {
      struct stat info{};
      if (::fstatat(dir.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(info.st_mode))
        return {};
      const std::string below = relative.empty() ? name : relative + "/" + name;
      if (names_.size() >= kMaxWatches || !add(below)) {
        emit({'o', true, 0, below});
        return {};
      }
      add_below(below);
      return {};
    });
  }

  /// False when the watched path itself is gone.
  bool handle(const inotify_event& event) {
    if ((event.mask & IN_Q_OVERFLOW) != 0) {
      emit({'o', true, 0, ""});
      return true;
    }
    const auto found = names_.find(event.wd);
    if (found == names_.end()) return true;
    const std::string base = found->second;
    if ((event.mask & IN_IGNORED) != 0) {
      names_.erase(found);
      return !base.empty();
    }
    const std::string name = event.len == 0 ? base
                             : base.empty() ? std::string(event.name)
                                            : base + "/" + event.name;
    const bool directory = (event.mask & IN_ISDIR) != 0;
    if ((event.mask & (IN_DELETE_SELF | IN_MOVE_SELF)) != 0) {
      if (base.empty()) emit({'d', directory, 0, ""});
      return !base.empty();
    }
    const char kind = (event.mask & IN_CREATE) != 0        ? 'c'
                      : (event.mask & IN_CLOSE_WRITE) != 0 ? 'm'
                      : (event.mask & IN_DELETE) != 0      ? 'd'
                      : (event.mask & IN_MOVED_FROM) != 0  ? 'f'
                      : (event.mask & IN_MOVED_TO) != 0    ? 't'
                                                           : 'a';
    emit({kind, directory, event.cookie, name});
    if (directory && options_.recursive && (kind == 'c' || kind == 't') && names_.size() < kMaxWatches &&
        add(name)) {
      // What was made inside before the watch was there has no event: the caller looks again.
      emit({'o', true, 0, name});
      add_below(name);
    }
    return true;
  }

  void emit(const WatchEvent& event) {
    ByteWriter writer;
    event.append_to(writer);
    out_.record(RecordKind::kChange, writer.bytes());
  }

  const FileOptions& options_;
  UniqueFd inotify_;
  std::map<int, std::string> names_;
  Output out_;
};

}  // namespace

Result<std::string> watch_task(const FileOptions& options) {
  UniqueFd inotify(::inotify_init1(IN_CLOEXEC));
  if (!inotify.valid()) return file_error("Watching", options.path, errno);
  DRUPE_TRY(Watcher(options, std::move(inotify)).run());
  return std::string();
}

}  // namespace drupe::agent
