#include "image/pip_wheels.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/spawn.h"

namespace drupe {
namespace {

constexpr int kPollMs = 200;  // How soon a cancel is noticed.
constexpr std::size_t kMaxMessages = 4096;
constexpr const char* kRequirements = "requirements.txt";
/// In the image while it is built.
constexpr const char* kInside = "/var/tmp/wheels";
/// glibc of Debian 12; pip takes a wheel for any of these and older.
constexpr int kNewestGlibc = 36;
constexpr int kOldestGlibc = 17;

/// All of it: where packages come from is told to pip by its own variables, proxies and files.
std::vector<std::string> inherited_environment() {
  std::vector<std::string> env;
  for (char** variable = ::environ; *variable != nullptr; ++variable) env.emplace_back(*variable);
  return env;
}

/// The first python3 of PATH that has pip.
Result<std::string> find_python() {
  const char* text = std::getenv("PATH");
  std::string_view rest = text != nullptr ? text : "/usr/local/bin:/usr/bin:/bin";
  while (!rest.empty()) {
    const auto colon = rest.find(':');
    const std::string program = std::string(rest.substr(0, colon)) + "/python3";
    rest.remove_prefix(colon == std::string_view::npos ? rest.size() : colon + 1);
    if (program.front() != '/' || ::access(program.c_str(), X_OK) != 0) continue;
    SpawnRequest request;
    request.program = program;
    request.argv = {"python3", "-c", "import pip"};
    request.env = inherited_environment();
    const auto child = spawn(request);
    if (!child) continue;
    const auto status = wait_for(*child);
    if (status && *status == 0) return program;
  }
  return fail(ErrorCode::kNotFound, "This image needs Python packages, and the host has no pip to fetch them",
              "Install it: apt-get install python3-pip");
}

/// Reads what it says until it ends; what is left of that, for errors.
Result<std::string> run_to_end(ChildProcess& child, const UniqueFd& out, CancelFlag cancel) {
  std::string said;
  while (true) {
    pollfd polled{.fd = out.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&polled, 1, kPollMs);
    if (cancelled(cancel)) {
      static_cast<void>(::kill(-child.pid, SIGKILL));
      static_cast<void>(wait_for(child));
      return fail(ErrorCode::kCancelled, "Building the image was stopped");
    }
    if (ready <= 0) continue;
    std::array<char, 4096> buffer{};
    const ssize_t got = ::read(out.get(), buffer.data(), buffer.size());
    if (got <= 0) break;
    said.append(buffer.data(), static_cast<std::size_t>(got));
    if (said.size() > kMaxMessages) said.erase(0, said.size() - kMaxMessages);
  }
  DRUPE_ASSIGN(const int status, wait_for(child));
  if (status == 0) return said;
  return fail(ErrorCode::kUnavailable,
              "Fetching Python packages ended with " + describe_wait_status(status) + ". pip said:\n" + said,
              "Most often an index could not be reached; pip's own settings (PIP_INDEX_URL) name another.");
}

}  // namespace

std::vector<std::string> pip_download(const std::string& python, const std::string& folder,
                                      const std::string& version) {
  std::vector<std::string> argv{python,
                                "-m",
                                "pip",
                                "download",
                                "--quiet",
                                "--no-input",
                                "--disable-pip-version-check",
                                "--no-deps",
                                "--require-hashes",
                                "--only-binary=:all:",
                                "--implementation=cp",
                                "--python-version=" + version,
                                "--platform=linux_x86_64",
                                "--platform=manylinux2014_x86_64"};
  for (int minor = kNewestGlibc; minor >= kOldestGlibc; --minor)
    argv.push_back("--platform=manylinux_2_" + std::to_string(minor) + "_x86_64");
  argv.insert(argv.end(), {"--dest", folder, "-r", folder + "/" + kRequirements});
  return argv;
}

std::vector<std::string> pip_hooks(const PipWheels& wheels) {
  const std::string inside = kInside;
  return {
      "copy-in '" + wheels.path() + "' /var/tmp",
      // What was fetched is checked again by whoever installs it. Compiled now, by the image's own Python.
      R"(chroot "$1" /usr/bin/python3 -m pip install --quiet --no-input --no-index --no-deps --require-hashes )"
      "--break-system-packages --root-user-action=ignore --no-cache-dir --disable-pip-version-check "
      "--find-links " +
          inside + " -r " + inside + "/" + kRequirements,
      R"(rm -rf "$1)" + inside + R"(" "$1/root/.cache")",
  };
}

Result<PipWheels> fetch_wheels(std::string_view lock, const std::string& version, CancelFlag cancel) {
  DRUPE_ASSIGN(const std::string python, find_python());
  DRUPE_ASSIGN(BuildFolder folder, BuildFolder::make());
  PipWheels wheels{std::make_shared<BuildFolder>(std::move(folder))};
  if (wheels.path().find('\'') != std::string::npos)
    return fail(ErrorCode::kInvalidArgument, "TMPDIR has a quote in its name", "Name another folder in it.");
  DRUPE_TRY(make_dirs(wheels.path()));
  DRUPE_TRY(replace_file(AT_FDCWD, wheels.path() + "/" + kRequirements, std::string(lock), Sync::kNo, 0644));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_sys("Making a pipe failed", errno);
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  SpawnRequest request;
  request.program = "/usr/bin/setpriv";
  request.argv = {"setpriv", "--pdeathsig", "KILL", "--"};
  const auto argv = pip_download(python, wheels.path(), version);
  request.argv.insert(request.argv.end(), argv.begin(), argv.end());
  request.env = inherited_environment();
  request.cwd = "/";
  request.fds = {{write_end.get(), 1}, {write_end.get(), 2}, {wheels.folder->lock(), 3}};
  DRUPE_ASSIGN(ChildProcess child, spawn(request));
  write_end.reset();
  DRUPE_TRY(run_to_end(child, read_end, cancel));
  return wheels;
}

}  // namespace drupe
