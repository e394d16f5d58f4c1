// Starting a process that inherits exactly the descriptors it is given, and waiting for it by pidfd.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/confine.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe {

/// Descriptor `from` of this process becomes `to` in the child.
struct FdMapping {
  int from = -1;
  int to = -1;
};

struct SpawnRequest {
  std::string program;            ///< Path; PATH is not searched.
  std::vector<std::string> argv;  ///< With argv[0]. Visible to every process of the machine: no secrets.
  std::vector<std::string> env;   ///< "NAME=value"; nothing is inherited.
  std::string cwd;                ///< Empty: unchanged (confined with an empty root: "/").
  std::vector<FdMapping> fds;     ///< Exactly these are open in the child; of 0, 1, 2 the rest is /dev/null.
  bool new_session = true;        ///< A session of its own: no terminal signals from the caller's.
  /// SIGKILL when the thread that is its parent ends. Only spawn_confined() honours it.
  bool die_with_parent = false;
  /// Set: the program becomes a child of the caller's own parent, which alone can wait for it. Children that
  /// failed before they were the program are added here, for that parent to reap. Only spawn_confined().
  std::vector<pid_t>* failed_siblings = nullptr;
};

/// A started child: whoever holds it must wait for it. Destroying it neither kills nor reaps.
struct ChildProcess {
  pid_t pid = -1;
  UniqueFd pidfd;  ///< Readable when the child has ended.
};

/// Callable from any thread of a program that has others (posix_spawn, no code of ours runs in between).
Result<ChildProcess> spawn(const SpawnRequest& request);

struct ConfinedChild {
  ChildProcess child;
  std::vector<std::string> missing;  ///< What of the confinement this host did not allow, in words.
};

/// Forks, applies `confinement` in the child and executes the program there. Only for single-threaded
/// callers. Returns after the exec; when that fails, the child is reaped and the error says which step
/// failed.
Result<ConfinedChild> spawn_confined(const SpawnRequest& request, const Confinement& confinement);

/// Reaps the child if it has ended: its wait status, or nothing while it runs.
Result<std::optional<int>> try_wait(const ChildProcess& child);
/// Reaps the child, waiting as long as it takes.
Result<int> wait_for(const ChildProcess& child);
/// SIGKILL through the pidfd; a child that has ended already is no error.
void kill_child(const ChildProcess& child);
/// The same with another signal.
void signal_child(const ChildProcess& child, int number);

/// "exit status 3", "killed by signal 9 (Killed)".
[[nodiscard]] std::string describe_wait_status(int status);

}  // namespace drupe
