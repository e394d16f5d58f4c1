#include "cli/sandbox_flags.h"

#include <cstdlib>

#include <fcntl.h>

#include "base/files.h"
#include "cli/terminal.h"
#include "cli/values.h"

namespace drupe::cli {
namespace {

constexpr std::size_t kMaxEnvFile = 4 * 1024 * 1024;

Status read_env_file(const std::string& path, std::vector<std::string>& into) {
  DRUPE_ASSIGN(const std::string text, read_file(AT_FDCWD, path, kMaxEnvFile));
  std::size_t start = 0;
  std::size_t number = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    std::string_view line = std::string_view(text).substr(start, end - start);
    start = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos || line[first] == '#') continue;
    line.remove_prefix(first);
    if (line.front() == '=')
      return fail(ErrorCode::kInvalidArgument,
                  path + ", line " + std::to_string(number) + ": there is no name before the '='");
    into.emplace_back(line);
  }
  return {};
}

std::string refusal(std::string_view what) {
  return std::string(what) + " is not offered yet: this version runs sandboxes without host folders";
}

void add_refused(FlagSet& flags) {
  constexpr std::string_view kCopy = "; copy files with --copy-in, --copy-out or 'drupe cp'";
  flags.refused("-v, --volume", true, refusal("Mounting a host folder") + std::string(kCopy))
      .refused("--mount", true, refusal("Mounting a host folder") + std::string(kCopy))
      .refused("--tmpfs", true, refusal("Mounting at start"))
      .refused("-P, --publish-all", false, "is not offered: name the ports with -p");
  for (const char* name : {"--privileged", "--read-only"})
    flags.refused(name, false, "is Docker's and has no meaning here: each sandbox is a machine of its own");
  for (const char* name :
       {"--cap-add", "--cap-drop", "--device", "--gpus", "--security-opt", "--restart", "--platform"})
    flags.refused(name, true, "is not offered by Drupe");
}

}  // namespace

void CommandFlags::add_to(FlagSet& flags, bool may_detach) {
  if (may_detach) flags.flag("-d, --detach", detach, "Do not wait for the command");
  flags.list("-e, --env", "KEY=VALUE", env, "Environment variable; KEY alone takes its value from here")
      .list("--env-file", "FILE", env_files, "File of environment variables, one a line")
      .text("-w, --workdir", "PATH", cwd, "Working directory")
      .text("-u, --user", "USER[:GROUP]", user, "Name or number; default: the image's")
      .flag("-i, --interactive", input, "Forward stdin to the command")
      .flag("-t, --tty", tty, "Give the command a terminal")
      .value(
          "--timeout", "DURATION",
          [this](std::string_view value) -> Status {
            DRUPE_ASSIGN(timeout_ms, parse_duration_ms(value));
            return {};
          },
          "Kill the command after this long (30, 500ms, 5m, 1h30m); the exit status is then 124");
}

Result<std::vector<std::string>> CommandFlags::environment() const {
  std::vector<std::string> raw;
  for (const auto& path : env_files) {
    if (auto read = read_env_file(path, raw); !read)
      return std::unexpected(std::move(read).error().in("--env-file"));
  }
  raw.insert(raw.end(), env.begin(), env.end());
  std::vector<std::string> out;
  for (auto& entry : raw) {
    if (entry.find('=') != std::string::npos) {
      out.push_back(std::move(entry));
    } else if (const char* value = std::getenv(entry.c_str()); value != nullptr) {
      out.push_back(entry + "=" + value);
    } else if (entry.empty()) {
      return fail(ErrorCode::kInvalidArgument, "An environment variable needs a name");
    }
  }
  return out;
}

void SandboxFlags::add_to(FlagSet& flags, bool run) {
  command.add_to(flags, run);
  flags
      .value(
          "--entrypoint", "PROGRAM",
          [this](std::string_view value) -> Status {
            entrypoint = value;
            has_entrypoint = true;
            return {};
          },
          "Program to run instead of the image's entrypoint; empty: none")
      .text("--name", "NAME", name, "Name of the sandbox; default: a generated one")
      .text("-h, --hostname", "NAME", hostname, "Host name inside; default: the id")
      .list("-l, --label", "KEY=VALUE", labels, "Label, for 'drupe ps --filter'")
      .value(
          "--cpus", "NUMBER",
          [this](std::string_view value) -> Status {
            DRUPE_ASSIGN(cpus, parse_cpus(value));
            return {};
          },
          "Processors; default 1")
      .value(
          "-m, --memory", "SIZE",
          [this](std::string_view value) -> Status {
            DRUPE_ASSIGN(memory_mib, parse_memory_mib(value));
            return {};
          },
          "Memory, e.g. 512m or 2g; default 512m")
      .value(
          "--disk", "SIZE",
          [this](std::string_view value) -> Status {
            DRUPE_ASSIGN(disk_bytes, parse_size(value));
            return {};
          },
          "Size of the disk; default 8g")
      .value(
          "--pull", "WHEN",
          [this](std::string_view value) -> Status {
            if (value == "missing") {
              pull = PullPolicy::kMissing;
            } else if (value == "always") {
              pull = PullPolicy::kAlways;
            } else if (value == "never") {
              pull = PullPolicy::kNever;
            } else {
              return fail(ErrorCode::kInvalidArgument,
                          "takes missing, always or never, not '" + printable(value) + "'");
            }
            return {};
          },
          "Pull the image: missing (default), always, never")
      .flag("--insecure", insecure, "Speak plain http to the registry")
      .value(
          "--require", "hardware",
          [this](std::string_view value) -> Status {
            if (value != "hardware")
              return fail(ErrorCode::kInvalidArgument, "takes 'hardware', not '" + printable(value) + "'");
            require_hardware = true;
            return {};
          },
          "Refuse to run under software emulation")
      .value(
          "--idle-timeout", "DURATION",
          [this](std::string_view value) -> Status {
            DRUPE_ASSIGN(idle_timeout_ms, parse_duration_ms(value));
            return {};
          },
          "Pause the sandbox after this long without a command")
      .value(
          "--max-lifetime", "DURATION",
          [this](std::string_view value) -> Status {
            DRUPE_ASSIGN(max_lifetime_ms, parse_duration_ms(value));
            return {};
          },
          "End the sandbox after this long")
      .flag("--rm", remove,
            run ? "Remove the sandbox when it ends; without -d that is the default"
                : "Remove the sandbox when it ends");
  if (run) {
    flags.flag("--keep", keep, "Keep the sandbox after a run in the foreground")
        .list("--copy-in", "SRC:DEST", copy_in, "Copy a local file or folder in before the command starts")
        .list("--copy-out", "SRC:DEST", copy_out, "Copy a file or folder out after the command has ended");
  }
  network.add_to(flags, /*for_new=*/true);
  flags.flag(
      "--host-ca", host_ca,
      "The sandbox also trusts the certificate authorities that this machine trusts (inspecting proxies)");
  add_refused(flags);
}

Result<SandboxOptions> SandboxFlags::options(const std::vector<std::string>& words) const {
  SandboxOptions options;
  options.image = words.front();
  options.command.assign(words.begin() + 1, words.end());
  if (!options.command.empty() && options.command.front() == "--")
    options.command.erase(options.command.begin());
  options.name = name;
  if (has_entrypoint) {
    options.entrypoint.emplace();
    if (!entrypoint.empty()) options.entrypoint->push_back(entrypoint);
  }
  for (const auto& label : labels) {
    const auto equals = label.find('=');
    if (label.empty() || equals == 0)
      return fail(ErrorCode::kInvalidArgument, "--label: '" + printable(label) + "' has no name",
                  "Write --label KEY=VALUE");
    options.labels[label.substr(0, equals)] = equals == std::string::npos ? "" : label.substr(equals + 1);
  }
  DRUPE_ASSIGN(options.env, command.environment());
  options.cwd = command.cwd;
  options.user = command.user;
  options.hostname = hostname;
  if (cpus) options.cpus = *cpus;
  if (memory_mib) options.memory_mib = *memory_mib;
  if (disk_bytes) options.disk_bytes = *disk_bytes;
  options.network = network.options();
  options.host_ca = host_ca;
  options.networks = network.networks;
  options.tty = command.tty;
  options.stdin_open = command.input;
  const TerminalSize size = terminal_size();
  options.rows = size.rows;
  options.columns = size.columns;
  options.timeout_ms = command.timeout_ms;
  options.idle_timeout_ms = idle_timeout_ms.value_or(0);
  options.max_lifetime_ms = max_lifetime_ms.value_or(0);
  options.require_hardware = require_hardware;
  options.pull = pull;
  options.insecure_registry = insecure;
  return options;
}

}  // namespace drupe::cli
