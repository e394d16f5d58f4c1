// drupe logs.
#include <cerrno>
#include <deque>

#include <signal.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/files.h"
#include "cli/commands.h"
#include "cli/signal_watch.h"
#include "cli/values.h"
#include "shim/log_file.h"

namespace drupe::cli {
namespace {

struct LogFlags {
  bool follow = false, timestamps = false;
  std::optional<std::uint64_t> tail_lines;
};

class Follower {
 public:
  Follower(Session& session, const LogFlags& flags) : session_(session), flags_(flags) {}
  int run(const std::string& word);

 private:
  Status print_new();
  Status print_tail();
  Status write(std::int64_t time_ns, Channel channel, std::string_view bytes);
  Status follow(Engine& engine, const SandboxInfo& sandbox);

  Session& session_;
  const LogFlags& flags_;
  UniqueFd directory_;
  std::uint64_t offset_ = 0;
  bool at_line_start_ = true;
};

Status Follower::write(std::int64_t time_ns, Channel channel, std::string_view bytes) {
  const int fd = channel == Channel::kStderr ? STDERR_FILENO : STDOUT_FILENO;
  if (!flags_.timestamps) return write_all(fd, bytes);
  std::string out;
  while (!bytes.empty()) {
    if (at_line_start_) out += format_time(time_ns) + " ";
    const auto end = bytes.find('\n');
    const std::size_t count = end == std::string_view::npos ? bytes.size() : end + 1;
    out += bytes.substr(0, count);
    at_line_start_ = end != std::string_view::npos;
    bytes.remove_prefix(count);
  }
  return write_all(fd, out);
}

Status Follower::print_new() {
  Status written;
  DRUPE_TRY(
      read_log(directory_.get(), offset_, [&](std::int64_t time_ns, Channel channel, std::string_view bytes) {
        written = write(time_ns, channel, bytes);
        return written.has_value();
      }));
  return written;
}

Status Follower::print_tail() {
  struct Piece {
    std::int64_t time_ns;
    Channel channel;
    std::string bytes;
    std::uint64_t lines;
  };
  std::deque<Piece> kept;
  std::uint64_t lines = 0;
  DRUPE_TRY(
      read_log(directory_.get(), offset_, [&](std::int64_t time_ns, Channel channel, std::string_view bytes) {
        kept.push_back({time_ns, channel, std::string(bytes),
                        static_cast<std::uint64_t>(std::count(bytes.begin(), bytes.end(), '\n'))});
        lines += kept.back().lines;
        // What the rest can do without is dropped as it comes; an unfinished last line counts as a line.
        while (kept.size() > 1 && lines - kept.front().lines > *flags_.tail_lines) {
          lines -= kept.front().lines;
          kept.pop_front();
        }
        return true;
      }));
  if (kept.empty() || *flags_.tail_lines == 0) return {};
  std::uint64_t wanted = *flags_.tail_lines;
  if (!kept.back().bytes.ends_with('\n')) --wanted;
  while (lines > wanted) {
    std::string& front = kept.front().bytes;
    const auto end = front.find('\n');
    if (end == std::string::npos) {
      kept.pop_front();
      continue;
    }
    front.erase(0, end + 1);
    --lines;
    if (front.empty()) kept.pop_front();
    if (kept.empty()) return {};
  }
  for (const Piece& piece : kept) DRUPE_TRY(write(piece.time_ns, piece.channel, piece.bytes));
  return {};
}

Status Follower::follow(Engine& engine, const SandboxInfo& sandbox) {
  if (!sandbox.alive) return {};
  EventLoop& loop = engine.loop();
  UniqueFd changes(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!changes.valid() || ::inotify_add_watch(changes.get(), proc_fd_path(directory_.get()).c_str(),
                                              IN_MODIFY | IN_CREATE | IN_MOVED_TO) < 0)
    return fail_sys("Watching the log failed", errno);
  bool changed = true;
  bool ended = false;
  auto client = engine.connect(sandbox.record.id, false);
  if (client) {
    (*client)->on_closed([&ended] { ended = true; });
  } else {
    ended = true;  // It has ended since; what it wrote is still to be printed.
  }
  DRUPE_ASSIGN(const auto signals,
               SignalWatch::create(loop, {SIGINT, SIGTERM, SIGHUP}, [&ended](int) { ended = true; }));
  DRUPE_TRY(loop.watch(changes.get(), EPOLLIN, [&](std::uint32_t) {
    char events[4096];
    while (::read(changes.get(), events, sizeof events) > 0) {
    }
    changed = true;
  }));
  Status printed;
  while (printed && !ended) {
    auto waited = loop.run_until([&] { return changed || ended; }, Deadline::max());
    changed = false;
    printed = waited ? print_new() : Status(std::unexpected(waited.error()));
  }
  if (printed) printed = print_new();
  loop.unwatch(changes.get());
  return printed;
}

int Follower::run(const std::string& word) {
  auto engine = session_.engine();
  if (!engine) return session_.fail_with(engine.error(), 1);
  auto sandbox = (*engine)->find(word);
  if (!sandbox) return session_.fail_with(sandbox.error(), 1);
  auto directory = (*engine)->open_directory(sandbox->record.id);
  if (!directory) return session_.fail_with(directory.error(), 1);
  directory_ = *std::move(directory);
  auto printed = flags_.tail_lines ? print_tail() : print_new();
  if (printed && flags_.follow) printed = follow(**engine, *sandbox);
  if (printed) return 0;
  return printed.error().sys_errno == EPIPE ? 1 : session_.fail_with(printed.error(), 1);
}

}  // namespace

int run_command_logs(Session& session, const Arguments& arguments) {
  LogFlags flags;
  FlagSet set("logs [FLAGS] SANDBOX",
              "Prints what a sandbox's main command wrote (the last 10 MiB of it), stderr to stderr.");
  set.flag("-f, --follow", flags.follow, "Go on until the sandbox ends")
      .flag("-t, --timestamps", flags.timestamps, "A time in front of each line")
      .value(
          "-n, --tail", "LINES",
          [&flags](std::string_view text) -> Status {
            if (text == "all") return {};
            DRUPE_ASSIGN(flags.tail_lines, parse_number(text, 0, std::uint64_t{1} << 40));
            return {};
          },
          "Only the last lines, of both outputs together");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->size() != 1) return session.usage_error(set, "One sandbox is needed.");
  return Follower(session, flags).run(words->front());
}

}  // namespace drupe::cli
