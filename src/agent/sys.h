// System calls that libc has no wrapper for, and small helpers over the kernel's interface files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "base/files.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe::agent {

/// fork() that starts the child in the cgroup `cgroup` (-1: the caller's) and gives a pidfd. `flags` are
/// CLONE_NEW*. Returns 0 in the child, -1 with errno on failure. The caller is single-threaded.
pid_t clone_process(std::uint64_t flags, int cgroup, UniqueFd* pidfd);

struct Ended {
  int exit_code = -1;  ///< -1: by a signal.
  int signal = 0;
  std::uint64_t cpu_ns = 0;
};
/// Reaps the child behind `pidfd`, which must have ended (the descriptor is readable).
Ended reap(int pidfd);

/// pidfd_send_signal(); a process that is gone is no error.
void send_signal(int pidfd, int signal);

/// A line on the console.
void say(std::string_view text);

/// Whole small file of procfs, sysfs or cgroupfs; empty when it cannot be read.
[[nodiscard]] std::string slurp(DirFd dir, const std::string& path);
/// One write() of `text`; these files take a value in one call.
Status put(DirFd dir, const std::string& path, std::string_view text);
/// pread() of a whole small file from its start.
[[nodiscard]] std::string reread(int fd);
/// The number behind `key` in "key value" lines; 0 when it is not there.
[[nodiscard]] std::uint64_t value_of(std::string_view text, std::string_view key);
/// Something is mounted at `path`, a file as those of NameFiles or a directory: nothing can be renamed over
/// it.
[[nodiscard]] bool is_mount_point(DirFd dir, const std::string& path);

/// Decimal digits only; `fallback` for anything else.
[[nodiscard]] std::uint64_t parse_number(std::string_view digits, std::uint64_t fallback);

[[nodiscard]] std::uint64_t monotonic_ns();

struct Pipe {
  UniqueFd read, write;
};
/// Close-on-exec; blocking.
Result<Pipe> make_pipe();
/// For a descriptor without other status flags.
Status set_nonblocking(int fd);

}  // namespace drupe::agent
