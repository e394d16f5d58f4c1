// The pipes or the terminal between the agent and a process behind a stream.
#pragma once

#include <array>

#include "agent/job.h"
#include "agent/launch.h"

namespace drupe::agent {

/// Both sides, before the child that gets `theirs` is cloned.
struct Ends {
  Job::Process ours;
  std::array<UniqueFd, 4> theirs;  ///< in, out, err, status
  [[nodiscard]] ChildFds child() const {
    return {theirs[0].get(), theirs[1].get(), theirs[2].get(), theirs[3].get()};
  }
};

enum class StdinPipe : bool { kNo, kYes };
/// Status, stdout and stderr, and stdin where it is wanted.
Result<Ends> make_pipe_ends(StdinPipe in);
/// The same without stderr, for a built-in file operation.
Result<Ends> make_task_ends();
/// Status, and a new terminal of the user's devpts for the rest.
Result<Ends> make_terminal_ends(const Work& work, const ExecOptions& options);

}  // namespace drupe::agent
