// The single steps of confinement, for confine.cpp and spawn_confined.cpp only. Each step that the host
// refuses adds a phrase to `missing` and goes on; only what would leave the process in a broken state is an
// error.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "base/confine.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe::confine_steps {

using Missing = std::vector<std::string>;

/// Detached, read-only copies of the mounts behind Confinement::paths. Taken before the uid changes, because
/// their path may be reachable only with the rights of the caller.
struct RootSource {
  std::string path;
  std::string link_target;  ///< Not empty: a symbolic link, copied as one.
  bool directory = false;
  UniqueFd tree;
};
Result<std::vector<RootSource>> clone_root_sources(const std::vector<PathRule>& paths);
/// Makes a tmpfs with `sources` in it the root of this mount namespace, read-only.
Status enter_empty_root(const std::vector<RootSource>& sources);

void apply_landlock(const Confinement& confinement, Missing& missing);
void apply_seccomp(const Confinement& confinement, Missing& missing);
void drop_capabilities(Missing& missing);
/// `own_count`: RLIMIT_NPROC counts only this process tree.
void apply_limits(const Confinement& confinement, bool own_count, Missing& missing);
/// Landlock, capabilities, no_new_privs, seccomp: what comes last, in this order.
void lock_down(const Confinement& confinement, Missing& missing);

}  // namespace drupe::confine_steps
