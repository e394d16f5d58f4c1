#include "base/confine.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/confine_steps.h"
#include "base/files.h"
#include "base/spawn.h"

namespace drupe {
namespace confine_steps {
namespace {

void limit(int resource, rlim_t value, const char* name, Missing& missing) {
  rlimit now{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &now) == 0 && now.rlim_max != RLIM_INFINITY)
    value = std::min(value, now.rlim_max);
  const rlimit wanted{value, value};
  if (::setrlimit(static_cast<__rlimit_resource>(resource), &wanted) != 0)
    missing.push_back(std::string("limit on ") + name + " (" + std::strerror(errno) + ")");
}

}  // namespace

void drop_capabilities(Missing& missing) {
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  // Needs CAP_SETPCAP; a process without it gains nothing from the bounding set under no_new_privs.
  for (int cap = 0; cap <= CAP_LAST_CAP + 8; ++cap) ::prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> none{};
  if (::syscall(SYS_capset, &header, none.data()) != 0)
    missing.push_back(std::string("dropping capabilities (") + std::strerror(errno) + ")");
}

void apply_limits(const Confinement& confinement, bool own_count, Missing& missing) {
  limit(RLIMIT_CORE, 0, "core dumps", missing);
  if (confinement.max_open_files != 0)
    limit(RLIMIT_NOFILE, confinement.max_open_files, "open files", missing);
  if (confinement.max_processes != 0 && own_count)
    limit(RLIMIT_NPROC, confinement.max_processes, "processes", missing);
  if (confinement.oom_score_adj != 0) {
    auto file = open_at(AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY);
    if (!file || !write_all(file->get(), std::to_string(confinement.oom_score_adj)))
      missing.push_back("order of death under memory pressure (/proc/self/oom_score_adj)");
  }
}

void lock_down(const Confinement& confinement, Missing& missing) {
  // Landlock and an unprivileged seccomp filter need no_new_privs; rules are opened while the capabilities
  // still help.
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) missing.push_back("no_new_privs");
  apply_landlock(confinement, missing);
  drop_capabilities(missing);
  apply_seccomp(confinement, missing);
}

}  // namespace confine_steps

std::vector<PathRule> system_library_paths() {
  std::vector<PathRule> rules;
  rules.push_back(PathRule{"/usr"});
  // Executing a dynamic program executes its loader, too.
  rules.push_back(PathRule{"/lib64/ld-linux-x86-64.so.2", false, true});
  for (const char* path : {"/lib", "/lib64", "/etc/ld.so.cache", "/etc/ld.so.preload"}) {
    if (::access(path, F_OK) == 0) rules.push_back(PathRule{path});
  }
  return rules;
}

Result<std::vector<std::string>> confine_self(const Confinement& confinement) {
  std::vector<std::string> missing;
  confine_steps::apply_limits(confinement, false, missing);
  if (confinement.non_dumpable && ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
    missing.push_back("not dumpable");
  confine_steps::lock_down(confinement, missing);
  return missing;
}

namespace {

// One line for each phrase; "!" in front of an error.
std::string probe_report() {
  SpawnRequest request;
  request.program = "/usr/bin/true";
  request.argv = {"true"};
  Confinement confinement;
  confinement.paths = system_library_paths();
  confinement.paths.push_back(PathRule{request.program, false, true});
  confinement.oom_score_adj = 1;
  const auto confined = spawn_confined(request, confinement);
  if (!confined) return "!" + confined.error().message + "\n";
  const auto status = wait_for(confined->child);
  if (!status || *status != 0)
    return "!A confined program cannot run: " +
           (status ? describe_wait_status(*status) : status.error().message) + "\n";
  std::string out;
  for (const auto& phrase : confined->missing) out += phrase + "\n";
  return out;
}

}  // namespace

Result<std::vector<std::string>> probe_confinement() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_sys("Creating a pipe failed", errno);
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  // fork() leaves a child that may allocate, even when the caller has other threads; spawn_confined() needs
  // that.
  const pid_t pid = ::fork();
  if (pid < 0) return fail_sys("Creating a process failed", errno);
  if (pid == 0) {
    const auto told = write_all(write_end.get(), probe_report());
    ::_exit(told ? 0 : 1);
  }
  write_end.reset();
  auto text = read_all(read_end.get(), 65536);
  DRUPE_TRY(wait_for(ChildProcess{pid, UniqueFd()}));
  if (!text) return std::unexpected(std::move(text).error());
  std::vector<std::string> missing;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('!')) return fail(ErrorCode::kHost, line.substr(1));
    missing.push_back(line);
  }
  return missing;
}

}  // namespace drupe
