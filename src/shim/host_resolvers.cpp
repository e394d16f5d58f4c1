#include "shim/host_resolvers.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <arpa/inet.h>

#include "base/files.h"

namespace drupe {
namespace {

constexpr std::size_t kMaxResolvers = 3;  // resolv.conf(5): MAXNS
constexpr std::size_t kMaxSearch = 6;     // resolv.conf(5): MAXDNSRCH
constexpr int kMostLinks = 8;
constexpr std::uint32_t kInDirectory = IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_FROM;
// A file that is mounted over the name has its writers elsewhere.
constexpr std::uint32_t kOfFile = IN_CLOSE_WRITE | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF;

bool is_address(const std::string& text) {
  in6_addr raw{};
  return ::inet_pton(AF_INET, text.c_str(), &raw) == 1 || ::inet_pton(AF_INET6, text.c_str(), &raw) == 1;
}

std::string directory_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// What the link at `path` says; empty: it is none.
std::string target_of(const std::string& path) {
  char target[4096];
  const ssize_t size = ::readlink(path.c_str(), target, sizeof target);
  if (size <= 0 || size == static_cast<ssize_t>(sizeof target)) return {};
  std::string text(target, static_cast<std::size_t>(size));
  return text.front() == '/' ? text : directory_of(path) + "/" + text;
}

}  // namespace

HostResolvers parse_resolv_conf(std::string_view text) {
  HostResolvers out;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    std::string value;
    words >> word;
    if (word == "nameserver" && words >> value && is_address(value) && out.resolvers.size() < kMaxResolvers)
      out.resolvers.push_back(value);
    // The last of several counts.
    if (word == "search" || word == "domain") {
      out.search.clear();
      while (words >> value && out.search.size() < kMaxSearch) out.search.push_back(value);
    }
  }
  return out;
}

std::vector<std::string> resolvers_of(std::string_view text) {
  auto resolvers = parse_resolv_conf(text).resolvers;
  if (resolvers.empty()) resolvers.emplace_back("127.0.0.1");
  return resolvers;
}

Result<UniqueFd> open_resolv_conf() {
  return open_at(AT_FDCWD, kResolvConf, O_RDONLY | O_NONBLOCK);
}

Result<std::unique_ptr<ResolverWatch>> ResolverWatch::create(EventLoop& loop, std::string path,
                                                             std::function<void()> on_change) {
  UniqueFd inotify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify.valid()) return fail_sys("Watching the host's resolvers failed", errno);
  std::unique_ptr<ResolverWatch> watch(
      new ResolverWatch(loop, std::move(inotify), std::move(path), std::move(on_change)));
  watch->watch_files();
  DRUPE_TRY(
      loop.watch(watch->inotify_.get(), EPOLLIN, [raw = watch.get()](std::uint32_t) { raw->on_events(); }));
  return watch;
}

ResolverWatch::~ResolverWatch() {
  loop_.unwatch(inotify_.get());
  loop_.cancel(timer_);
}

// A directory or file that is watched already stays so. What does not exist is seen when it comes.
void ResolverWatch::watch_files() {
  names_.clear();
  std::string path = path_;
  for (int i = 0; i < kMostLinks && !path.empty(); ++i) {
    names_.push_back(path.substr(path.rfind('/') + 1));
    ::inotify_add_watch(inotify_.get(), directory_of(path).c_str(), kInDirectory | IN_ONLYDIR);
    path = target_of(path);
  }
  ::inotify_add_watch(inotify_.get(), path_.c_str(), kOfFile);
}

void ResolverWatch::on_events() {
  alignas(inotify_event) char buffer[4096];
  bool concerns = false;
  for (;;) {
    const ssize_t size = ::read(inotify_.get(), buffer, sizeof buffer);
    if (size <= 0) break;
    for (const char* at = buffer; at < buffer + size;) {
      inotify_event event{};
      std::memcpy(&event, at, sizeof event);
      // Of the file itself, or events were lost; IN_IGNORED only ends a watch.
      const bool unnamed = event.len == 0 && (event.mask & IN_IGNORED) == 0;
      const char* name = at + sizeof event;
      concerns |= unnamed || (event.len > 0 && std::ranges::find(names_, name) != names_.end());
      at += sizeof event + event.len;
    }
  }
  if (!concerns || timer_ != 0) return;
  timer_ = loop_.after(kSettle, [this] {
    timer_ = 0;
    watch_files();
    on_change_();
  });
}

}  // namespace drupe
