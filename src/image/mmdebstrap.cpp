#include "image/mmdebstrap.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/spawn.h"
#include "image/build_folder.h"

namespace drupe {
namespace {

constexpr std::size_t kMaxMessages = 4096;  // The end of what it said, for errors.
constexpr int kPollMs = 200;                // How soon a cancel is noticed.
constexpr int kGraceMs = 10'000;            // For the last of its children to end.
constexpr const char* kSetpriv = "/usr/bin/setpriv";
constexpr const char* kUnshare = "/usr/bin/unshare";
constexpr const char* kKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg";

struct Pipe {
  UniqueFd read, write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_sys("Making a pipe failed", errno);
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// What mmdebstrap, apt and the packages' scripts need from outside: where programs and temporary files are,
/// proxies.
std::vector<std::string> environment(const std::string& folder) {
  std::vector<std::string> env{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                               "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "TMPDIR=" + folder};
  for (const char* name :
       {"HOME", "USER", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"})
    if (const char* value = std::getenv(name); value != nullptr)
      env.push_back(std::string(name) + "=" + value);
  return env;
}

std::vector<std::string> arguments(const MmdebstrapRequest& request) {
  std::vector<std::string> argv{
      "mmdebstrap", "--mode=" + request.mode, "--variant=minbase", "--format=tar", "--architectures=amd64",
      // Stays in the image: a disposable machine gains nothing from waiting for its disk.
      "--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/doc/*",
      "--dpkgopt=path-include=/usr/share/doc/*/copyright", "--dpkgopt=path-exclude=/usr/share/man/*",
      "--dpkgopt=path-exclude=/usr/share/info/*", "--dpkgopt=path-exclude=/usr/share/locale/*"};
  if (::access(kKeyring, R_OK) == 0) argv.push_back("--keyring=" + std::string(kKeyring));
  for (const std::string& hook : request.hooks) argv.push_back("--customize-hook=" + hook);
  // mmdebstrap takes these two over from the host, whose business they are.
  argv.emplace_back(R"(--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname")");
  std::string include;
  for (const std::string& package : request.packages) include += (include.empty() ? "" : ",") + package;
  if (!include.empty()) argv.push_back("--include=" + include);
  argv.push_back(request.suite);
  argv.push_back("-");
  argv.insert(argv.end(), request.sources.begin(), request.sources.end());
  return argv;
}

/// mmdebstrap as root mounts /proc and more in its folder and starts package scripts. In namespaces of its
/// own these end with it, whatever ends it.
constexpr std::array<const char*, 6> kOwnNamespaces{"unshare", "--mount",      "--pid",
                                                    "--fork",  "--kill-child", "--mount-proc"};

std::vector<std::string> words(std::span<const char* const> texts) {
  return {texts.begin(), texts.end()};
}

/// False in containers that forbid it; mounting is forbidden there too.
bool can_unshare() {
  SpawnRequest request;
  request.program = kUnshare;
  request.argv = words(kOwnNamespaces);
  request.argv.emplace_back("/bin/true");
  const auto child = spawn(request);
  if (!child) return false;
  const auto status = wait_for(*child);
  return status && *status == 0;
}

class Mmdebstrap : public ByteSource {
 public:
  Mmdebstrap(BuildFolder folder, ChildProcess child, UniqueFd out, UniqueFd err,
             const MmdebstrapRequest& request)
      : folder_(std::move(folder)),
        child_(std::move(child)),
        out_(std::move(out)),
        err_(std::move(err)),
        on_progress_(request.on_progress),
        cancel_(request.cancel) {}
  ~Mmdebstrap() override { stop(); }
  Mmdebstrap(const Mmdebstrap&) = delete;
  Mmdebstrap& operator=(const Mmdebstrap&) = delete;

  Result<std::size_t> read(std::span<std::uint8_t> into) override {
    while (true) {
      if (cancelled(cancel_)) return fail(ErrorCode::kCancelled, "Building the image was stopped");
      // A negative descriptor is passed over.
      std::array<pollfd, 2> polled{{{.fd = out_.get(), .events = POLLIN, .revents = 0},
                                    {.fd = err_.get(), .events = POLLIN, .revents = 0}}};
      if (::poll(polled.data(), polled.size(), kPollMs) < 0 && errno != EINTR)
        return fail_sys("Waiting for mmdebstrap failed", errno);
      if (polled[1].revents != 0) take_messages();
      if (polled[0].revents != 0) {
        const ssize_t got = ::read(out_.get(), into.data(), into.size());
        if (got < 0) return fail_sys("Reading from mmdebstrap failed", errno);
        if (got > 0) {
          on_progress_ = nullptr;
          return static_cast<std::size_t>(got);
        }
        out_.reset();
      }
      if (!out_.valid() && !err_.valid()) return end();
    }
  }

 private:
  void take_messages() {
    std::array<char, 4096> buffer{};
    const ssize_t got = ::read(err_.get(), buffer.data(), buffer.size());
    if (got <= 0) {
      err_.reset();
      return;
    }
    messages_.append(buffer.data(), static_cast<std::size_t>(got));
    if (messages_.size() > kMaxMessages) messages_.erase(0, messages_.size() - kMaxMessages);
    // "I: installing remaining packages inside the chroot...": the last complete line that begins like this.
    const auto end = messages_.rfind("...\n");
    if (end == std::string::npos || !on_progress_) return;
    const auto before = messages_.rfind('\n', end);
    const auto begin = before == std::string::npos ? 0 : before + 1;
    if (std::string step = messages_.substr(begin, end - begin); step.starts_with("I: ") && step != step_) {
      step_ = std::move(step);
      on_progress_({.what = "Building: " + step_.substr(3)});
    }
  }

  Result<std::size_t> end() {
    if (child_.pid < 0) return std::size_t{0};
    DRUPE_ASSIGN(const int status, wait_for(child_));
    child_.pid = -1;
    if (status == 0) return std::size_t{0};
    return fail(ErrorCode::kUnavailable,
                "mmdebstrap ended with " + describe_wait_status(status) + ". It said:\n" + messages_,
                "Most often a mirror could not be reached; DRUPE_DEBIAN_MIRROR names another one.");
  }

  void stop() {
    if (child_.pid < 0) return;
    // Its children are in its process group; asking politely would leave some of them.
    (void)::kill(-child_.pid, SIGKILL);
    (void)wait_for(child_);
    // They are gone when nobody holds the pipes any more.
    for (const UniqueFd* end : {&out_, &err_}) {
      std::array<char, 65536> rest{};
      pollfd polled{.fd = end->get(), .events = POLLIN, .revents = 0};
      while (end->valid() && ::poll(&polled, 1, kGraceMs) > 0 &&
             ::read(end->get(), rest.data(), rest.size()) > 0) {
      }
    }
  }

  BuildFolder folder_;  // Goes last, when nobody writes into it any more.
  ChildProcess child_;
  UniqueFd out_, err_;
  OnProgress on_progress_;
  CancelFlag cancel_;
  std::string messages_, step_;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> run_mmdebstrap(const MmdebstrapRequest& request) {
  DRUPE_ASSIGN(BuildFolder folder, BuildFolder::make());
  DRUPE_ASSIGN(Pipe out, make_pipe());
  DRUPE_ASSIGN(Pipe err, make_pipe());
  SpawnRequest spawning;
  // It ends when this thread does, which waits for its bytes or has those who do.
  const bool own = request.mode == "root" && can_unshare();
  spawning.program = kSetpriv;
  spawning.argv = {"setpriv", "--pdeathsig", own ? "KILL" : "TERM", "--"};
  if (own) {
    const auto enter = words(kOwnNamespaces);
    spawning.argv.insert(spawning.argv.end(), enter.begin(), enter.end());
    spawning.argv.emplace_back("--");
  }
  const auto argv = arguments(request);
  spawning.argv.insert(spawning.argv.end(), argv.begin(), argv.end());
  spawning.env = environment(folder.path());
  spawning.cwd = "/";
  spawning.fds = {{out.write.get(), 1}, {err.write.get(), 2}, {folder.lock(), 3}};
  DRUPE_ASSIGN(ChildProcess child, spawn(spawning));
  return std::make_unique<Mmdebstrap>(std::move(folder), std::move(child), std::move(out.read),
                                      std::move(err.read), request);
}

}  // namespace drupe
