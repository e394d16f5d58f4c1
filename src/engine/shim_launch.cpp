#include "engine/shim_launch.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace drupe {
namespace {

constexpr std::size_t kMostStatusBytes = std::size_t{1} << 20;
constexpr int kEndingMs = 2000;
constexpr std::size_t kShownLogBytes = 2000;
/// What the shim may take beyond its own deadline to say that it has passed.
constexpr std::chrono::seconds kDeadlineSlack{10};

Result<UniqueFd> spec_file(const ShimSpec& spec) {
  UniqueFd fd(::memfd_create("drupe-spec", MFD_CLOEXEC));
  if (!fd.valid()) return fail_sys("Making the start specification failed", errno);
  DRUPE_TRY(write_all(fd.get(), spec.encode()));
  if (::lseek(fd.get(), 0, SEEK_SET) != 0) return fail_sys("Rewinding the start specification failed", errno);
  return fd;
}

/// The shim needs nothing of the caller's environment but Drupe's own switches.
std::vector<std::string> own_environment() {
  std::vector<std::string> env = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                  "LC_ALL=C.UTF-8"};
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (std::strncmp(*entry, "DRUPE_", 6) == 0) env.emplace_back(*entry);
  return env;
}

std::string log_tail(int dir) {
  const auto fd = open_at(dir, kShimLogFile, O_RDONLY | O_NOFOLLOW);
  if (!fd) return {};
  struct stat found{};
  if (::fstat(fd->get(), &found) != 0) return {};
  const off_t start = std::max<off_t>(0, found.st_size - static_cast<off_t>(kShownLogBytes));
  std::string text(kShownLogBytes, '\0');
  const ssize_t got = ::pread(fd->get(), text.data(), text.size(), start);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

Result<StartingShim> StartingShim::start(const Installation& installation, int dir, int lock,
                                         const ShimSpec& spec, int fork) {
  DRUPE_ASSIGN(const UniqueFd spec_fd, spec_file(spec));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_sys("Making the status pipe failed", errno);
  UniqueFd status(ends[0]);
  const UniqueFd status_end(ends[1]);
  if (::fcntl(status.get(), F_SETFL, O_NONBLOCK) != 0)
    return fail_sys("Setting up the status pipe failed", errno);
  DRUPE_ASSIGN(const UniqueFd log,
               open_at(dir, kShimLogFile, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW, 0600));
  UniqueFd own_dir(::fcntl(dir, F_DUPFD_CLOEXEC, 0));
  if (!own_dir.valid()) return fail_sys("Keeping the sandbox's directory open failed", errno);

  SpawnRequest request;
  request.program = installation.shim_path;
  request.argv = {"drupe-shim"};
  request.env = own_environment();
  request.fds = {{log.get(), 2},
                 {spec_fd.get(), kSpecFd},
                 {dir, kDirFd},
                 {lock, kLockFd},
                 {status_end.get(), kStatusFd}};
  if (fork >= 0) request.fds.push_back({fork, kForkFd});
  request.new_session = true;
  auto child = spawn(request);
  if (!child)
    return std::unexpected(std::move(child)
                               .error()
                               .in("Starting the sandbox's supervisor failed")
                               .with_next_step("Check that " + installation.shim_path + " is installed."));
  const auto tries = static_cast<std::uint64_t>(spec.restore_retries) + 1;
  const auto limit = std::chrono::milliseconds(spec.start_deadline_ms * tries) + kDeadlineSlack;
  return StartingShim(std::move(*child), std::move(status), std::move(own_dir), limit);
}

Result<ShimStatus> StartingShim::died() const {
  // The pipe's last writer has gone, so the process is ending; one that hangs there is ended.
  pollfd ended{child_.pidfd.get(), POLLIN, 0};
  if (::poll(&ended, 1, kEndingMs) == 0) kill_child(child_);
  const auto status = wait_for(child_);
  std::string text = "The sandbox's supervisor ended without a word";
  if (status) text += " (" + describe_wait_status(*status) + ")";
  if (const std::string tail = log_tail(dir_.get()); !tail.empty()) text += ". Its log ends with:\n" + tail;
  return fail(ErrorCode::kHost, text);
}

std::optional<Result<ShimStatus>> StartingShim::advance() {
  char chunk[4096];
  while (true) {
    const ssize_t got = ::read(status_.get(), chunk, sizeof(chunk));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return std::nullopt;
    if (got < 0) return fail_sys("Reading the supervisor's status failed", errno);
    if (got == 0) break;
    bytes_.append(chunk, static_cast<std::size_t>(got));
    if (bytes_.size() > kMostStatusBytes)
      return fail(ErrorCode::kHost, "The supervisor's status is too long");
  }
  if (bytes_.empty()) return died();
  return ShimStatus::decode(bytes_);
}

Result<ShimStatus> StartingShim::finish() {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    if (left <= 0) {
      kill();
      return fail(ErrorCode::kTimeout, "The sandbox's supervisor did not answer in time",
                  "Try again when this machine has less to do.");
    }
    pollfd entry{status_.get(), POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000))) <= 0) continue;
    if (auto status = advance()) return *std::move(status);
  }
}

void StartingShim::kill() {
  kill_child(child_);
  static_cast<void>(wait_for(child_));
}

}  // namespace drupe
