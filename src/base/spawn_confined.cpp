// fork, confine, exec. Everything between fork and exec is ordinary code, which only a single-threaded caller
// may do.
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <sstream>

#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/confine_steps.h"
#include "base/files.h"
#include "base/ids.h"
#include "base/spawn.h"

namespace drupe {
namespace {

using confine_steps::Missing;

constexpr std::uint64_t kAllNamespaces =
    CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
constexpr std::size_t kMaxReport = 16384;
constexpr char kFailed = '!';  // a report line with this first is the reason why there was no exec
constexpr char kMissed = '-';

struct Plan {
  std::uint64_t namespaces = 0;
  uid_t uid = 0;  // the ids to run with
  gid_t gid = 0;
  bool change_ids = false;
  bool stays_root = false;  // there is no other id
};

struct IdRange {
  std::uint32_t first = 0, count = 0;
};

// Ids that exist here (user_namespaces(7)); of one line each.
std::vector<IdRange> mapped_ids(const char* map) {
  std::vector<IdRange> ranges;
  std::istringstream lines(read_file(AT_FDCWD, map, 65536).value_or(std::string()));
  std::uint32_t first = 0, outside = 0, count = 0;
  while (lines >> first >> outside >> count) ranges.push_back({first, count});
  return ranges;
}

bool has(const std::vector<IdRange>& ranges, uid_t id) {
  return std::ranges::any_of(
      ranges, [id](const IdRange& one) { return id >= one.first && id - one.first < one.count; });
}

// An id that no account and no other sandbox has: another process that runs under the same id could open our
// /proc files. Where a user namespace ends before such ids, one of the upper half of those that it has. None:
// there are too few.
std::optional<uid_t> fresh_id() {
  constexpr std::uint32_t kUnused = 0x40000000, kRandom = 0xffffff, kFewest = 4096;
  const std::string raw = random_bytes(sizeof(std::uint32_t));
  std::uint32_t random = 0;
  std::memcpy(&random, raw.data(), sizeof random);
  const auto uids = mapped_ids("/proc/self/uid_map");
  const auto gids = mapped_ids("/proc/self/gid_map");
  const uid_t unused = kUnused | (random & kRandom);
  if (has(uids, unused) && has(gids, unused)) return unused;
  for (const IdRange& range : uids) {
    if (range.count < kFewest) continue;
    const uid_t id = range.first + range.count / 2 + random % (range.count - range.count / 2);
    if (has(gids, id)) return id;
  }
  return std::nullopt;
}

Plan make_plan(const Confinement& confinement, std::uint64_t namespaces) {
  Plan plan{namespaces, ::geteuid(), ::getegid()};
  if (!confinement.leave_root || plan.uid != 0) return plan;
  const auto id = fresh_id();
  plan.stays_root = !id;
  if (!id) return plan;
  plan.uid = plan.gid = *id;
  plan.change_ids = true;
  return plan;
}

// A sibling's exit signal is that of this process.
pid_t clone_process(std::uint64_t namespaces, bool sibling, int* pidfd) {
  const std::uint64_t kin = sibling ? CLONE_PARENT : SIGCHLD;
  return static_cast<pid_t>(
      ::syscall(SYS_clone, namespaces | CLONE_PIDFD | kin, nullptr, pidfd, nullptr, nullptr));
}

Status write_proc(pid_t pid, const char* name, const std::string& text) {
  DRUPE_ASSIGN(const UniqueFd file, open_at(AT_FDCWD, "/proc/" + std::to_string(pid) + "/" + name, O_WRONLY));
  return write_all(file.get(), text);
}

// The parent maps one uid and gid, because a child whose own uid is unmapped could not.
Status map_ids(pid_t pid, const Plan& plan) {
  const auto map = [](unsigned id) { return std::to_string(id) + " " + std::to_string(id) + " 1"; };
  if (!plan.change_ids) DRUPE_TRY(write_proc(pid, "setgroups", "deny"));
  DRUPE_TRY(write_proc(pid, "uid_map", map(plan.uid)));
  return write_proc(pid, "gid_map", map(plan.gid));
}

Status become(const Plan& plan) {
  if (!plan.change_ids) return {};
  if (::setgroups(0, nullptr) != 0 || ::syscall(SYS_setresgid, plan.gid, plan.gid, plan.gid) != 0 ||
      ::syscall(SYS_setresuid, plan.uid, plan.uid, plan.uid) != 0)
    return fail_sys("Leaving the root account failed", errno);
  return {};
}

// Puts the descriptors where the request wants them and `report` above all of them; closes the rest.
Result<int> arrange_fds(const SpawnRequest& request, int report) {
  int highest = 2;
  for (const auto& fd : request.fds) highest = std::max(highest, fd.to);
  const int moved_report = ::fcntl(report, F_DUPFD_CLOEXEC, highest + 1);
  std::vector<FdMapping> moved;
  for (const auto& fd : request.fds) {
    const int high = ::fcntl(fd.from, F_DUPFD_CLOEXEC, highest + 2);
    if (high < 0 || moved_report < 0) return fail_sys("Copying a descriptor failed", errno);
    moved.push_back(FdMapping{high, fd.to});
  }
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd <= 2; ++fd) {
    if (null >= 0) ::dup2(null, fd);
  }
  ::close_range(3, static_cast<unsigned>(highest), 0);
  for (const auto& fd : moved) {
    if (::dup2(fd.from, fd.to) < 0) return fail_sys("Placing a descriptor failed", errno);
  }
  if (::dup2(moved_report, highest + 1) < 0) return fail_sys("Placing a descriptor failed", errno);
  ::close_range(static_cast<unsigned>(highest + 2), ~0U, 0);
  ::fcntl(highest + 1, F_SETFD, FD_CLOEXEC);
  return highest + 1;
}

Status confine_child(const Confinement& confinement, const Plan& plan, Missing& missing) {
  const bool own_mounts = (plan.namespaces & CLONE_NEWNS) != 0;
  const bool own_users = (plan.namespaces & CLONE_NEWUSER) != 0;
  confine_steps::apply_limits(confinement, own_users || plan.change_ids, missing);
  std::vector<confine_steps::RootSource> sources;
  const bool empty_root = confinement.empty_root && own_mounts;
  if (own_mounts && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return fail_sys("Detaching the mount namespace failed", errno);
  if (empty_root) {
    DRUPE_ASSIGN(sources, confine_steps::clone_root_sources(confinement.paths));
  }
  // In a user namespace the new ids come first: files of a mount that it makes must belong to a mapped id.
  if (own_users) DRUPE_TRY(become(plan));
  if (empty_root) DRUPE_TRY(confine_steps::enter_empty_root(sources));
  sources.clear();
  if (!own_users) DRUPE_TRY(become(plan));
  confine_steps::lock_down(confinement, missing);
  return {};
}

Status die_with(pid_t parent, bool own_pid_namespace) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
    return fail_sys("Binding to the parent failed", errno);
  // In a PID namespace of its own the parent is always 0: there the report tells, whose reader is the parent.
  if (!own_pid_namespace && ::getppid() != parent) return fail(ErrorCode::kCancelled, "The parent has ended");
  return {};
}

void reset_signals() {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

Status prepare_child(const SpawnRequest& request, const Confinement& confinement, const Plan& plan,
                     pid_t parent, int& report, Missing& missing) {
  reset_signals();
  if (request.new_session) ::setsid();
  DRUPE_ASSIGN(report, arrange_fds(request, report));
  DRUPE_TRY(confine_child(confinement, plan, missing));
  if (!request.cwd.empty() && ::chdir(request.cwd.c_str()) != 0)
    return fail_sys("Entering " + request.cwd, errno);
  // After the last change of ids, which clears it.
  if (request.die_with_parent) return die_with(parent, (plan.namespaces & CLONE_NEWPID) != 0);
  return {};
}

[[noreturn]] void run_child(const SpawnRequest& request, const Confinement& confinement, const Plan& plan,
                            pid_t parent, int go, int report) {
  char byte = 0;
  if (::read(go, &byte, 1) != 1) ::_exit(127);
  Missing missing;
  if (plan.stays_root) missing.emplace_back("an id of its own (this user namespace has no other)");
  auto prepared = prepare_child(request, confinement, plan, parent, report, missing);
  // Never empty: when the parent has died before it could take this child along, writing ends the child
  // (SIGPIPE).
  std::string text = "\n";
  for (const auto& phrase : missing) text += kMissed + phrase + "\n";
  if (prepared) {
    [[maybe_unused]] const auto told = write_all(report, text);
    text.clear();
    std::vector<char*> argv;
    std::vector<char*> env;
    for (const auto& arg : request.argv) argv.push_back(const_cast<char*>(arg.c_str()));
    for (const auto& entry : request.env) env.push_back(const_cast<char*>(entry.c_str()));
    argv.push_back(nullptr);
    env.push_back(nullptr);
    ::execve(request.program.c_str(), argv.data(), env.data());
    prepared = fail_sys("Executing " + request.program + " failed", errno);
  }
  text += kFailed + prepared.error().message + "\n";
  [[maybe_unused]] const auto told = write_all(report, text);
  ::_exit(127);
}

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return fail_sys("Creating a pipe failed", errno);
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Status discard(const SpawnRequest& request, const ChildProcess& child) {
  kill_child(child);
  if (request.failed_siblings != nullptr) {
    request.failed_siblings->push_back(child.pid);
    return {};
  }
  DRUPE_TRY(wait_for(child));
  return {};
}

Result<ConfinedChild> read_report(const SpawnRequest& request, ChildProcess child, int report) {
  auto text = read_all(report, kMaxReport);
  std::vector<std::string> missing;
  std::string failed = text ? "" : text.error().message;
  for (std::string_view rest = text ? std::string_view(*text) : std::string_view(); !rest.empty();) {
    const auto end = std::min(rest.find('\n'), rest.size() - 1);
    const std::string_view line = rest.substr(0, end);
    if (line.starts_with(kFailed)) failed = line.substr(1);
    if (line.starts_with(kMissed)) missing.emplace_back(line.substr(1));
    rest.remove_prefix(end + 1);
  }
  if (failed.empty()) return ConfinedChild{std::move(child), std::move(missing)};
  DRUPE_TRY(discard(request, child));
  return fail(ErrorCode::kHost, "Starting a confined process failed: " + failed);
}

// One attempt with one set of namespaces. kPermission: the host refuses them.
Result<ConfinedChild> attempt(const SpawnRequest& request, const Confinement& confinement,
                              std::uint64_t namespaces) {
  const Plan plan = make_plan(confinement, namespaces);
  DRUPE_ASSIGN(auto go, make_pipe());
  DRUPE_ASSIGN(auto report, make_pipe());
  const bool sibling = request.failed_siblings != nullptr;
  const pid_t parent = sibling ? ::getppid() : ::getpid();
  std::fflush(nullptr);
  int pidfd = -1;
  const pid_t pid = clone_process(plan.namespaces, sibling, &pidfd);
  if (pid < 0) return fail_errno(ErrorCode::kPermission, "Creating a process failed", errno);
  if (pid == 0) {
    go.write.reset();
    run_child(request, confinement, plan, parent, go.read.get(), report.write.get());
  }
  ChildProcess child{pid, UniqueFd(pidfd)};
  report.write.reset();
  if ((plan.namespaces & CLONE_NEWUSER) != 0) {
    if (auto mapped = map_ids(pid, plan); !mapped) {
      DRUPE_TRY(discard(request, child));
      mapped.error().code = ErrorCode::kPermission;
      return std::unexpected(std::move(mapped).error());
    }
  }
  DRUPE_TRY(write_all(go.write.get(), "g"));
  return read_report(request, std::move(child), report.read.get());
}

}  // namespace

Result<ConfinedChild> spawn_confined(const SpawnRequest& request, const Confinement& confinement) {
  if (!confinement.namespaces) return attempt(request, confinement, 0);
  const std::uint64_t wanted =
      confinement.host_network ? kAllNamespaces & ~std::uint64_t{CLONE_NEWNET} : kAllNamespaces;
  auto all = attempt(request, confinement, wanted);
  if (all || all.error().code != ErrorCode::kPermission) return all;
  const std::string reason = all.error().message;
  if (::geteuid() == 0) {
    auto most = attempt(request, confinement, wanted & ~std::uint64_t{CLONE_NEWUSER});
    if (most) {
      most->missing.insert(most->missing.begin(), "user namespace (" + reason + ")");
      return most;
    }
  }
  auto bare = attempt(request, confinement, 0);
  if (bare) bare->missing.insert(bare->missing.begin(), "namespaces and empty root (" + reason + ")");
  return bare;
}

}  // namespace drupe
