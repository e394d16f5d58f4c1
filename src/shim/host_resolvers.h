// The host's resolv.conf(5): read, and followed while it changes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/event_loop.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe {

inline constexpr const char* kResolvConf = "/etc/resolv.conf";

/// Resolvers and search domains: at most three and six, as the C library has it.
struct HostResolvers {
  std::vector<std::string> resolvers, search;
};
[[nodiscard]] HostResolvers parse_resolv_conf(std::string_view text);
/// Those that `text` names; without any, the one on this machine (resolv.conf(5)).
[[nodiscard]] std::vector<std::string> resolvers_of(std::string_view text);
inline constexpr std::size_t kMaxResolvConf = std::size_t{64} << 10;

/// For a process that still may open files: the errand (HelperProgram::errand) that opens the file for one
/// that may not.
inline constexpr std::string_view kResolversErrand = "resolv.conf";
Result<UniqueFd> open_resolv_conf();

/// Tells that the file may have changed: written in place, replaced, or, where it is a symbolic link, any of
/// that with what it leads to, and the link itself. It opens nothing, so it works in a process that may not
/// open the file. One thread, that of `loop`.
class ResolverWatch {
 public:
  /// `on_change` comes kSettle after the first of several changes.
  static Result<std::unique_ptr<ResolverWatch>> create(EventLoop& loop, std::string path,
                                                       std::function<void()> on_change);
  ~ResolverWatch();
  ResolverWatch(const ResolverWatch&) = delete;
  ResolverWatch& operator=(const ResolverWatch&) = delete;

  /// Whoever writes the file takes more than one step.
  static constexpr std::chrono::milliseconds kSettle{200};

 private:
  ResolverWatch(EventLoop& loop, UniqueFd inotify, std::string path, std::function<void()> on_change)
      : loop_(loop), inotify_(std::move(inotify)), path_(std::move(path)), on_change_(std::move(on_change)) {}
  void watch_files();
  void on_events();

  EventLoop& loop_;
  UniqueFd inotify_;
  std::string path_;
  std::function<void()> on_change_;
  std::vector<std::string> names_;  // of the file and of what it leads to, without directories
  EventLoop::TimerId timer_ = 0;    // 0: none runs
};

}  // namespace drupe
