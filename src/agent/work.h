// The user's part of the machine: the disk as root, namespaces of its own, and the init that reaps there.
#pragma once

#include <cstdint>
#include <string>

#include "agent/cgroups.h"
#include "agent/names.h"
#include "agent/sys.h"

namespace drupe::agent {

/// Which PID namespace the caller's next children belong to.
enum class ChildNamespace { kAgent, kWork };

/// Owns the descriptors of the namespaces. The mounts live in them, not in the agent's own tree, so a kernel
/// helper that starts a program by path never finds one of the user's.
class Work {
 public:
  /// Mounts the disk, starts the namespaces' init, waits until the root is prepared (work_init.cpp has the
  /// list).
  static Result<Work> create(Cgroups& cgroups);

  /// Readable when the init has ended, and with it all user work.
  [[nodiscard]] int init_pidfd() const { return init_.get(); }
  [[nodiscard]] pid_t init_pid() const { return init_pid_; }
  /// The root file system's mount.
  [[nodiscard]] int root() const { return root_.get(); }
  /// fork() for work in these namespaces. In the child of kWork, getpid() is the pid that user work sees.
  /// Other namespaces are entered by the child itself, with enter().
  pid_t clone(ChildNamespace where, int cgroup, UniqueFd* pidfd);
  /// Moves the calling process, a fresh child, into the mount, UTS, IPC and cgroup namespaces; root and cwd
  /// become `/`.
  [[nodiscard]] Status enter() const;
  /// A new pseudo-terminal of the user's own devpts.
  Result<UniqueFd> open_pty() const;
  /// What user work reads as its boot id.
  Status set_boot_id(const std::string& id);
  [[nodiscard]] const std::string& boot_id() const { return boot_id_text_; }
  [[nodiscard]] NameFiles& names() { return names_; }

 private:
  UniqueFd root_, devpts_, init_, own_pid_ns_, boot_id_;
  NameFiles names_;
  std::string boot_id_text_;
  pid_t init_pid_ = 0;
  ChildNamespace current_ = ChildNamespace::kAgent;
};

/// What the init's child process gets; see work_init.cpp.
struct WorkMounts {
  int root, devpts;
  int extras;  ///< The boot id and the name files.
};
/// Body of the init; `ready` gets "ok" or the reason of a failure. Never returns.
[[noreturn]] void run_work_init(const WorkMounts& mounts, UniqueFd ready);

}  // namespace drupe::agent
