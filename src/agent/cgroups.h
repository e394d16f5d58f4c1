// The guest's cgroup tree: `agent` for this program, `work` for everything of the user's with one child per
// command.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/sys.h"

namespace drupe::agent {

/// The cgroup of one command. Reused for later commands once it is empty, since making one costs more than a
/// fork.
struct ExecCgroup {
  std::string name;
  UniqueFd dir;
  UniqueFd memory_events;
  UniqueFd events;
  std::uint64_t oom_kills = 0;  ///< As last read.
  bool settled = false;         ///< It was empty before that, so the number is final.

  /// Kills every process in it and below.
  void kill() const;
  /// Processes of it were killed for want of memory since it was acquired or this was last asked.
  [[nodiscard]] bool oom_killed();
  [[nodiscard]] bool populated() const;
};

/// Limits: `work` gets all memory but a reserve for the agent and the kernel (a sixteenth, 24 to 128 MiB),
/// 16,384 processes, and a CPU weight far below the agent's.
class Cgroups {
 public:
  /// Mounts cgroup2 at /cg and moves the caller into `agent`.
  static Result<Cgroups> create();

  /// For the namespaces' init: it must be in `work` itself while it makes its cgroup namespace, so
  /// controllers come later.
  [[nodiscard]] int work() const { return work_.get(); }
  /// Moves that init (a pid of the caller's namespace) to work/init and switches the controllers of `work`
  /// on.
  Status settle(pid_t work_init);
  /// For built-in file operations.
  [[nodiscard]] int tasks() const { return tasks_.get(); }

  Result<std::unique_ptr<ExecCgroup>> acquire();
  void release(std::unique_ptr<ExecCgroup> cgroup);

  /// Asks the kernel to freeze or thaw `work`; done when frozen() says so. events_fd() has EPOLLPRI at each
  /// change.
  Status set_frozen(bool frozen);
  [[nodiscard]] bool frozen() const;
  [[nodiscard]] int events_fd() const { return events_.get(); }
  void kill_work() const;

 private:
  Result<std::unique_ptr<ExecCgroup>> make();

  UniqueFd root_, agent_, work_, tasks_, events_, freeze_;
  std::vector<std::unique_ptr<ExecCgroup>> free_;       ///< Empty, at most kPooled.
  std::vector<std::unique_ptr<ExecCgroup>> lingering_;  ///< The command ended, children of it live on.
  std::uint64_t next_ = 1;
};

}  // namespace drupe::agent
