// Taking away from a process what it does not need. Every measure that the host does not allow is reported,
// never skipped silently: Drupe shows the sum as host_confinement full, partial or weak.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace drupe {

/// A file or directory tree that stays reachable by path.
struct PathRule {
  std::string path;
  bool write = false;    ///< Create, change, remove beneath it.
  bool execute = false;  ///< Programs beneath it may be executed.
};
/// The same for a directory that is open already.
struct DirRule {
  int fd = -1;
  bool write = false;
  /// Nothing but removing empty directories beneath it; `write` is ignored.
  bool only_remove_dirs = false;
};

struct Confinement {
  /// Child only: user, mount, network, PID, IPC and UTS namespaces of its own.
  bool namespaces = true;
  /// With `namespaces`: the network namespace stays the caller's. For a program whose work are connections of
  /// this host.
  bool host_network = false;
  /// Child only, needs the mount namespace: a root directory with nothing but the paths of `paths` in it.
  bool empty_root = true;
  /// Child only: a process with uid 0 continues as an unprivileged uid that no other process has.
  bool leave_root = true;
  /// What stays reachable (Landlock, and the content of the empty root, where everything is read-only).
  std::vector<PathRule> paths;
  std::vector<DirRule> dirs;       ///< Landlock only.
  bool allow_sockets = false;      ///< socket(), socketpair(), bind(), connect(), listen().
  bool allow_unix_accept = false;  ///< accept() on listeners that exist.
  /// Self only: the process is done with everything but carrying bytes in one thread between descriptors that
  /// it has, sockets of IPv4 and IPv6 that it connects, and pairs of Unix stream sockets. The seccomp filter
  /// then lists what is allowed, and the other allow_ fields do not matter: nothing is opened by path, bound,
  /// executed or made executable.
  bool only_network = false;
  bool allow_exec = true;  ///< execve() and fork(); a child needs it for its own program.
  /// Signals to processes that are not confined further than this one. A process needs it that ends its
  /// confined children, by kill or by dying itself (PR_SET_PDEATHSIG).
  bool allow_signals = false;
  bool non_dumpable = false;         ///< Self only: exec undoes it.
  int oom_score_adj = 0;             ///< 0 leaves it; 1..1000: dies earlier under memory pressure.
  std::uint32_t max_open_files = 0;  ///< RLIMIT_NOFILE; 0 leaves it.
  /// RLIMIT_NPROC, threads included; applied only where the uid's count is this process tree's own. 0 leaves
  /// it.
  std::uint32_t max_processes = 0;
};

/// Paths that a dynamically linked program of the distribution needs: /usr, the /lib links, the loader's
/// cache.
[[nodiscard]] std::vector<PathRule> system_library_paths();

/// Applies everything that can be applied to a running, single-threaded process: no_new_privs, no
/// capabilities, rlimits, Landlock, seccomp, not dumpable. Irreversible. Returns what this host did not
/// allow.
Result<std::vector<std::string>> confine_self(const Confinement& confinement);

/// What confinement of helper processes this host allows, found by confining a short-lived child.
Result<std::vector<std::string>> probe_confinement();

}  // namespace drupe
