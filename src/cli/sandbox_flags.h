// The flags that `run` and `create` share, and those of them that `exec` has too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"
#include "cli/network_flags.h"
#include "engine/engine.h"

namespace drupe::cli {

/// -e, --env-file, -w, -u, -i, -t, -d, --timeout: of one command.
struct CommandFlags {
  std::vector<std::string> env, env_files;
  std::string cwd, user;
  bool input = false, tty = false, detach = false;
  std::uint64_t timeout_ms = 0;

  void add_to(FlagSet& flags, bool may_detach);
  /// "KEY=value" entries: those of the files first, then -e. A bare KEY takes its value from this process, as
  /// Docker does.
  [[nodiscard]] Result<std::vector<std::string>> environment() const;
};

struct SandboxFlags {
  CommandFlags command;
  NetworkFlags network;
  std::string entrypoint, hostname, name;
  std::vector<std::string> labels;
  std::optional<double> cpus;
  std::optional<std::uint64_t> memory_mib, disk_bytes;
  bool keep = false, remove = false, has_entrypoint = false;
  bool require_hardware = false, insecure = false, host_ca = false;
  std::vector<std::string> copy_in, copy_out;
  PullPolicy pull = PullPolicy::kMissing;
  std::optional<std::uint64_t> idle_timeout_ms, max_lifetime_ms;

  /// With copies: --copy-in and --copy-out, which only `run` has.
  void add_to(FlagSet& flags, bool run);
  /// `words`: the image and the command after it (with or without "--" between them).
  [[nodiscard]] Result<SandboxOptions> options(const std::vector<std::string>& words) const;
};

}  // namespace drupe::cli
