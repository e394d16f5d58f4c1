// The child's side of starting a command: from the fork to the execve.
#pragma once

#include <string>
#include <vector>

#include "agent/work.h"
#include "protocol/messages.h"

namespace drupe::agent {

/// What commands get when their request does not say otherwise; from SetUpRequest.
struct Defaults {
  std::vector<std::string> env;
  std::string user;
  std::string cwd;
};

/// Descriptors of the child. With a tty, `in`, `out` and `err` are the same slave.
struct ChildFds {
  int in = -1, out = -1, err = -1;
  int status = -1;  ///< Close-on-exec.
};

/// How a command could not start; what the status pipe carries after the pid when execve() did not happen.
struct LaunchFailure {
  std::int32_t exit_code = 126;
  Error error;
  [[nodiscard]] std::string encode() const;
  static Result<LaunchFailure> decode(ByteView bytes);
};

/// Writes the pid to the status pipe, becomes the command, or writes a LaunchFailure and exits with its code.
[[noreturn]] void launch(const Work& work, const ExecOptions& options, const Defaults& defaults,
                         const ChildFds& fds);

/// What launch() ends with, for a process in the namespaces, with all descriptors in place (`status`
/// close-on-exec) and none to spare.
[[noreturn]] void run_command(const ExecOptions& options, const Defaults& defaults, int status);

/// For every child: default signal actions, empty mask, a session of its own.
void reset_process();
/// Puts the three standard descriptors (-1: /dev/null) and `keep` in place and closes all others. Returns the
/// new number of `keep`, which is 3, close-on-exec.
int arrange_descriptors(const ChildFds& fds);

}  // namespace drupe::agent
