#include "agent/launch.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "agent/users.h"

namespace drupe::agent {
namespace {

constexpr std::string_view kDefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr rlim_t kOpenFilesSoft = 1024 * 1024;
constexpr int kKept = 3;

std::unexpected<Error> cannot_run(const std::string& program, int err) {
  Error error{ErrorCode::kHost, "Running \"" + program + "\" failed: " + std::strerror(err), {}, err};
  if (err == ENOENT) {
    error.code = ErrorCode::kNotFound;
    error.message = "The program \"" + program + "\" was not found in the sandbox";
    error.next_step = "Check its spelling and PATH, or install it";
  } else if (err == EACCES || err == EPERM) {
    error.code = ErrorCode::kPermission;
    error.message = "The program \"" + program + "\" is not executable by this user";
    error.next_step = "Check its mode and that it is a file";
  } else if (err == ENOEXEC) {
    error.code = ErrorCode::kInvalidArgument;
    error.message =
        "The program \"" + program + "\" is neither a binary for this machine nor a script with a #! line";
    error.next_step = "Run it through its interpreter";
  } else if (err == E2BIG) {
    error.code = ErrorCode::kLimit;
    error.message = "The arguments and environment are longer than the guest's kernel takes";
    error.next_step =
        "Keep one string below 128 KiB and all of them below a quarter of the stack limit; use files or "
        "stdin for more";
  } else if (err == ENOMEM || err == EAGAIN) {
    error.code = ErrorCode::kLimit;
  }
  return std::unexpected(std::move(error));
}

class Environment {
 public:
  void set(std::string_view entry) {
    const std::size_t key = entry.find('=') + 1;
    for (auto& old : entries_) {
      if (old.size() >= key && std::string_view(old).substr(0, key) == entry.substr(0, key)) {
        old = entry;
        return;
      }
    }
    entries_.emplace_back(entry);
  }
  /// The value, or null.
  [[nodiscard]] const char* get(std::string_view key) const {
    for (const auto& entry : entries_)
      if (entry.size() > key.size() && entry[key.size()] == '=' && entry.starts_with(key))
        return entry.c_str() + key.size() + 1;
    return nullptr;
  }
  void set_default(std::string_view key, std::string_view value) {
    if (get(key) == nullptr) entries_.push_back(std::string(key) + "=" + std::string(value));
  }
  [[nodiscard]] std::vector<char*> pointers() {
    std::vector<char*> list;
    list.reserve(entries_.size() + 1);
    for (auto& entry : entries_) list.push_back(entry.data());
    list.push_back(nullptr);
    return list;
  }

 private:
  std::vector<std::string> entries_;
};

Result<Environment> make_environment(const ExecOptions& options, const Defaults& defaults,
                                     const UserIds& user) {
  Environment env;
  for (const auto* list : {&defaults.env, &options.env}) {
    for (const auto& entry : *list) {
      const auto equals = entry.find('=');
      if (equals == 0 || equals == std::string::npos)
        return fail(ErrorCode::kInvalidArgument,
                    "The environment entry \"" + entry.substr(0, 64) + "\" is not KEY=value");
      env.set(entry);
    }
  }
  env.set_default("PATH", kDefaultPath);
  env.set_default("HOME", user.home);
  std::array<char, 65> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) env.set_default("HOSTNAME", host.data());
  if (options.tty) env.set_default("TERM", "xterm");
  return env;
}

Status apply_limits(const ExecOptions& options) {
  const rlimit files{kOpenFilesSoft, kOpenFilesSoft};
  ::setrlimit(RLIMIT_NOFILE, &files);
  for (const auto& limit : options.limits) {
    const rlimit value{limit.soft, limit.hard};
    if (::setrlimit(static_cast<__rlimit_resource>(limit.resource), &value) != 0)
      return fail_errno(ErrorCode::kInvalidArgument,
                        "Setting the resource limit " + std::to_string(limit.resource) + " failed", errno);
  }
  return {};
}

/// The image's own working directory is made when it is missing, as other engines do; one that was asked for
/// is not.
void make_default_directory(const std::string& path) {
  for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    ::mkdir(path.substr(0, at).c_str(), 0755);
    if (at == std::string::npos) return;
  }
}

Status change_directory(const std::string& path) {
  if (::chdir(path.c_str()) == 0) return {};
  const int err = errno;
  Error error{ErrorCode::kInvalidArgument,
              "The working directory \"" + path + "\" cannot be used: " + std::strerror(err),
              "Create it first, or choose another", err};
  return std::unexpected(std::move(error));
}

Status enter_directory(const ExecOptions& options, const Defaults& defaults, const UserIds& user) {
  std::string path = options.cwd;
  const std::string fallback = defaults.cwd.empty() ? "/" : defaults.cwd;
  if (path.empty()) {
    path = fallback;
    struct stat info{};
    if (::stat(path.c_str(), &info) != 0 && errno == ENOENT) make_default_directory(path);
  } else if (path[0] != '/') {
    path = fallback + "/" + path;
  }
  // Both orders are needed: root's own directories, and those of a user on a FUSE mount that shuts root out.
  const auto as_root = change_directory(path);
  DRUPE_TRY(become(user));
  return as_root ? Status() : change_directory(path);
}

Status take_terminal(const ExecOptions& options) {
  if (!options.tty) return {};
  if (::ioctl(STDIN_FILENO, TIOCSCTTY, 0) != 0) return fail_sys("Taking the terminal failed", errno);
  return {};
}

std::unexpected<Error> execute(const ExecOptions& options, Environment& env) {
  std::vector<std::string> arguments = options.argv;
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::vector<char*> envp = env.pointers();
  const std::string& program = options.argv[0];
  if (program.find('/') != std::string::npos) {
    ::execve(program.c_str(), argv.data(), envp.data());
    return cannot_run(program, errno);
  }
  const char* set_path = env.get("PATH");
  std::string_view path = set_path == nullptr ? kDefaultPath : std::string_view(set_path);
  int err = ENOENT;
  while (true) {
    const std::string_view directory = path.substr(0, path.find(':'));
    const std::string candidate = (directory.empty() ? "." : std::string(directory)) + "/" + program;
    ::execve(candidate.c_str(), argv.data(), envp.data());
    // One directory that may not be read does not hide a later one, but it is the better reason if there is
    // none.
    if (errno == EACCES)
      err = EACCES;
    else if (errno != ENOENT && errno != ENOTDIR)
      return cannot_run(candidate, errno);
    if (directory.size() == path.size()) return cannot_run(program, err);
    path.remove_prefix(directory.size() + 1);
  }
}

Result<void> try_launch(const ExecOptions& options, const Defaults& defaults) {
  if (options.argv.empty() || options.argv[0].empty())
    return fail(ErrorCode::kInvalidArgument, "There is no command to run");
  const std::string& spec = options.user.empty() ? defaults.user : options.user;
  DRUPE_ASSIGN(const UserIds user, find_user_of_image(spec));
  DRUPE_ASSIGN(Environment env, make_environment(options, defaults, user));
  if (options.tty) {
    // As login does: the terminal belongs to its user, and the group tty may write to it.
    if (::fchown(STDIN_FILENO, user.uid, 5) != 0)
      return fail_sys("Giving the terminal to its user failed", errno);
  }
  DRUPE_TRY(take_terminal(options));
  DRUPE_TRY(apply_limits(options));
  ::umask(022);
  DRUPE_TRY(enter_directory(options, defaults, user));
  return execute(options, env);
}

void tell_pid(int status) {
  const std::int32_t pid = ::getpid();
  [[maybe_unused]] const auto told = write_all(status, ByteWriter().number(pid).bytes());
}

[[noreturn]] void end_unlaunched(int status, const Error& error) {
  LaunchFailure failure{126, error};
  if (error.sys_errno == ENOENT && error.code == ErrorCode::kNotFound) failure.exit_code = 127;
  [[maybe_unused]] const auto told = write_all(status, failure.encode());
  ::_exit(failure.exit_code);
}

}  // namespace

std::string LaunchFailure::encode() const {
  return ByteWriter().number(exit_code).take() + encode_error_reply(error);
}

Result<LaunchFailure> LaunchFailure::decode(ByteView bytes) {
  ByteReader reader(bytes);
  LaunchFailure failure;
  failure.exit_code = reader.number<std::int32_t>();
  const auto reply = decode_reply(reader.rest());
  if (!reader.ok() || reply) return fail(ErrorCode::kGuest, "The command's start was not reported whole");
  failure.error = reply.error();
  return failure;
}

void reset_process() {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::setsid();
}

int arrange_descriptors(const ChildFds& fds) {
  // Copies above the range first, so that no dup2() below overwrites a source.
  std::array<int, 4> high{};
  const std::array<int, 4> from{fds.in, fds.out, fds.err, fds.status};
  for (std::size_t i = 0; i < from.size(); ++i) {
    const int source = from[i] >= 0 ? from[i] : ::open("/dev/null", O_RDWR | O_CLOEXEC);
    high[i] = ::fcntl(source, F_DUPFD_CLOEXEC, 16);
  }
  for (int i = 0; i < kKept; ++i) ::dup2(high[static_cast<std::size_t>(i)], i);
  ::dup3(high[kKept], kKept, O_CLOEXEC);
  return kKept;
}

void launch(const Work& work, const ExecOptions& options, const Defaults& defaults, const ChildFds& fds) {
  reset_process();
  const int status = arrange_descriptors(fds);
  // The namespaces' descriptors are still needed for a moment; nothing above 2 survives the execve.
  ::close_range(kKept, ~0U, CLOSE_RANGE_CLOEXEC);
  if (auto entered = work.enter(); !entered) {
    tell_pid(status);
    end_unlaunched(status, entered.error());
  }
  run_command(options, defaults, status);
}

void run_command(const ExecOptions& options, const Defaults& defaults, int status) {
  tell_pid(status);
  const auto tried = try_launch(options, defaults);
  end_unlaunched(status, tried.error());
}

}  // namespace drupe::agent
