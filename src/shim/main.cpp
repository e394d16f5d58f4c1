// drupe-shim: holds one sandbox. Started by the engine with a specification, the sandbox's directory, its
// locked lock file and a status pipe (shim/spec.h); not meant to be run by hand.
#include <csignal>
#include <cstdio>
#include <string>

#include <fcntl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/files.h"
#include "base/log.h"
#include "hypervisor/qemu/qemu.h"
#include "shim/host_resolvers.h"
#include "shim/private_network.h"
#include "shim/sandbox.h"

namespace drupe {
namespace {

constexpr std::size_t kMaxSpec = 8 * 1024 * 1024;
constexpr std::uint32_t kMaxOpenFiles = 1024;
constexpr std::uint32_t kMaxConnections = 8192;
constexpr std::uint32_t kMaxNetworkThreads = 16;
constexpr int kNetworkOomScore = 500;
constexpr int kOomScore = 100;  // Before the user's own programs, after the hypervisors.

// The directory that the sandbox's directory lies in, and its name there: for the removal at the very end.
struct Place {
  UniqueFd parent;
  std::string name;
};

Place find_place() {
  Place place;
  char target[4096];
  const ssize_t got = ::readlink(proc_fd_path(kDirFd).c_str(), target, sizeof target);
  if (got <= 0 || got == static_cast<ssize_t>(sizeof target)) return place;
  const std::string path(target, static_cast<std::size_t>(got));
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return place;
  auto parent = open_at(AT_FDCWD, slash == 0 ? "/" : path.substr(0, slash), O_RDONLY | O_DIRECTORY);
  if (!parent) return place;
  place.parent = std::move(*parent);
  place.name = path.substr(slash + 1);
  return place;
}

void remove_place(const Place& place) {
  struct stat own{};
  struct stat named{};
  if (!place.parent.valid() || ::fstat(kDirFd, &own) != 0) return;
  // Renamed or replaced meanwhile: then it is not ours to remove.
  if (::fstatat(place.parent.get(), place.name.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0 ||
      own.st_ino != named.st_ino || own.st_dev != named.st_dev)
    return;
  ::unlinkat(place.parent.get(), place.name.c_str(), AT_REMOVEDIR);
}

Result<std::vector<std::string>> lock_down(const Place& place) {
  Confinement confinement;
  confinement.namespaces = false;
  confinement.empty_root = false;
  confinement.leave_root = false;
  confinement.dirs = {DirRule{kDirFd, true}};
  // A sandbox that removes itself ends with its own, then empty, directory.
  if (place.parent.valid()) confinement.dirs.push_back(DirRule{place.parent.get(), false, true});
  // The hypervisor must die by our hand, and with us.
  confinement.allow_signals = true;
  confinement.allow_sockets = false;
  confinement.allow_unix_accept = true;
  confinement.allow_exec = false;
  confinement.non_dumpable = true;
  confinement.oom_score_adj = kOomScore;
  confinement.max_open_files = kMaxOpenFiles;
  return confine_self(confinement);
}

// Outbound connections are this host's own, so it keeps the host's network; nothing else of the host is
// within its reach.
HelperProgram network_program(const ShimSpec& spec, const std::string& sandbox) {
  HelperProgram helper;
  helper.path = spec.net_path;
  helper.confinement.host_network = true;
  helper.confinement.paths = system_library_paths();
  helper.confinement.paths.push_back(PathRule{spec.net_path, false, true});
  helper.confinement.allow_sockets = true;
  helper.confinement.oom_score_adj = kNetworkOomScore;
  helper.confinement.max_open_files = kMaxConnections;
  helper.confinement.max_processes = kMaxNetworkThreads;
  helper.errand = [sandbox](std::string_view request) {
    return request == kResolversErrand ? open_resolv_conf() : connect_to_peer(sandbox, request);
  };
  return helper;
}

Result<UniqueFd> watch_signals(EventLoop& loop, std::function<void()> on_term) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&signals, number);
  if (::sigprocmask(SIG_BLOCK, &signals, nullptr) != 0) return fail_sys("Blocking signals failed", errno);
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return fail_sys("Creating a signal descriptor failed", errno);
  DRUPE_TRY(
      loop.watch(fd.get(), 1 /* EPOLLIN */, [raw = fd.get(), on_term = std::move(on_term)](std::uint32_t) {
        signalfd_siginfo info{};
        while (::read(raw, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
          if (info.ssi_signo == SIGTERM) on_term();
      }));
  return fd;
}

void report(const ShimStatus& status) {
  // The engine may have gone; then nobody reads it, and that is no fault of the sandbox.
  [[maybe_unused]] const auto written = write_all(kStatusFd, status.encode());
  ::close(kStatusFd);
}

Result<ShimSpec> read_spec() {
  DRUPE_ASSIGN(const std::string bytes, read_all(kSpecFd, kMaxSpec));
  ::close(kSpecFd);
  return ShimSpec::decode(bytes);
}

Status run_sandbox(ShimStatus& status, bool& reported) {
  DRUPE_ASSIGN(ShimSpec spec, read_spec());
  if (::fchdir(kDirFd) != 0) return fail_sys("Entering the sandbox's directory failed", errno);
  DRUPE_ASSIGN(SandboxRecord record, read_record(kDirFd));
  DRUPE_ASSIGN(const auto loop, EventLoop::create());
  QemuOptions options;
  options.program = spec.qemu_path;
  options.preload = spec.preload_path;
  options.accelerator = spec.accelerator;
  options.tsc_khz = spec.tsc_khz;
  DRUPE_ASSIGN(const auto hypervisor, make_qemu_hypervisor(std::move(options)));
  // Before anything of a guest is here: what it is made from stays in it.
  if (spec.mode != LaunchMode::kMakeBase)
    DRUPE_TRY(hypervisor->keep_starter(network_program(spec, record.id)));
  Place place = find_place();
  SandboxHost host;
  host.dir = kDirFd;
  host.lock = kLockFd;
  if (spec.awaits_fork) {
    if (::fcntl(kForkFd, F_SETFD, FD_CLOEXEC) != 0)
      return fail(ErrorCode::kInvalidArgument, "A child of a fork was started without its pipe");
    host.fork = kForkFd;
  }
  host.placed = [&place] { place = find_place(); };
  host.lock_down = [&place] { return lock_down(place); };
  host.start_network = [&](UniqueFd log_fd, UniqueFd frames, Deadline deadline) {
    return hypervisor->start_helper(*loop, std::move(log_fd), std::move(frames), deadline);
  };
  host.connect_peer = [&](std::string_view peer, Deadline deadline) {
    return hypervisor->run_errand(*loop, peer, deadline);
  };
  host.open_resolvers = [&](Deadline deadline) {
    return hypervisor->run_errand(*loop, kResolversErrand, deadline);
  };
  host.remove_directory = [&place] { remove_place(place); };
  Sandbox sandbox(*loop, *hypervisor, std::move(host), std::move(spec), std::move(record));
  DRUPE_ASSIGN(const UniqueFd signals, watch_signals(*loop, [&sandbox] {
                 sandbox.stop(EndCause::kStopped, "Its shim was asked to end (SIGTERM)");
               }));
  auto started = sandbox.start();
  status.timings = sandbox.timings();
  status.notes = sandbox.notes();
  if (!started) {
    ::unlinkat(kDirFd, kSocketFile, 0);
    ::unlinkat(kDirFd, kPeerSocketFile, 0);
    return started;
  }
  report(status);
  reported = true;
  return sandbox.serve();
}

}  // namespace
}  // namespace drupe

int main() {
  using namespace drupe;
  set_log_name("drupe-shim");
  ::umask(077);
  ::signal(SIGPIPE, SIG_IGN);
  for (const int fd : {kSpecFd, kDirFd, kLockFd, kStatusFd}) {
    if (::fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) continue;
    std::fputs("drupe-shim holds one sandbox; it is started by drupe, not by hand.\n", stderr);
    return 2;
  }
  ShimStatus status;
  bool reported = false;
  if (auto ran = run_sandbox(status, reported); !ran) {
    log(LogLevel::kError, ran.error().message);
    if (reported) return 1;
    status.error = std::move(ran).error();
    report(status);
    return 1;
  }
  return 0;
}
