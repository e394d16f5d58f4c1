#include "agent/names.h"

#include <algorithm>
#include <cerrno>
#include <string_view>

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace drupe::agent {
namespace {

constexpr off_t kMaxHosts = 1024 * 1024;
constexpr std::string_view kOurLine = " # this sandbox";

/// In place: the descriptor is what is mounted.
Status overwrite(int fd, const char* name, std::string_view text) {
  DRUPE_TRY(pwrite_all(fd, text, 0));
  struct stat info{};
  if (::fstat(fd, &info) != 0 || (info.st_size != static_cast<off_t>(text.size()) &&
                                  ::ftruncate(fd, static_cast<off_t>(text.size())) != 0))
    return fail_sys(std::string("Writing /etc/") + name + " failed", errno);
  return {};
}

/// Mostly a few hundred bytes, so no buffer for the most that it could be.
Result<std::string> content(int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return fail_sys("Looking at a file in /etc failed", errno);
  std::string text(static_cast<std::size_t>(std::min<off_t>(info.st_size, 2 * kMaxHosts)), '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  if (got < 0) return fail_sys("Reading a file in /etc failed", errno);
  text.resize(static_cast<std::size_t>(got));
  return text;
}

std::string image_hosts(int root) {
  const auto etc = open_etc(root, O_RDONLY | O_DIRECTORY);
  if (!etc) return {};
  const auto fd = open_at(etc->get(), "hosts", O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  struct stat info{};
  if (!fd || ::fstat(fd->get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  auto text = read_all(fd->get(), static_cast<std::size_t>(kMaxHosts));
  return text ? *std::move(text) : std::string();
}

/// The hosts file with our own line for `hostname`, everything else as it was.
std::string hosts_with(std::string_view old, std::string_view hostname) {
  std::string out;
  while (!old.empty()) {
    const std::string_view line = old.substr(0, old.find('\n'));
    old.remove_prefix(line.size() == old.size() ? line.size() : line.size() + 1);
    if (!line.ends_with(kOurLine)) out.append(line).append("\n");
  }
  if (out.find("localhost") == std::string::npos)
    out += "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";
  return out.append("127.0.1.1\t").append(hostname).append(kOurLine).append("\n");
}

}  // namespace

Result<UniqueFd> open_etc(int root, int flags) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_IN_ROOT;
  UniqueFd etc(static_cast<int>(::syscall(SYS_openat2, root, "etc", &how, sizeof how)));
  if (!etc.valid()) return fail_sys("Opening the guest's /etc failed", errno);
  return etc;
}

Result<NameFiles> NameFiles::create(DirFd directory, int root) {
  NameFiles files;
  UniqueFd* const places[] = {&files.hostname_, &files.hosts_, &files.machine_id_};
  for (std::size_t i = 0; i < kNameFiles.size(); ++i) {
    DRUPE_ASSIGN(*places[i], open_at(directory, kNameFiles[i].name, O_RDWR | O_CREAT, 0600));
    // Whatever the umask is.
    if (::fchmod(places[i]->get(), kNameFiles[i].mode) != 0)
      return fail_sys("Setting the mode of a file in /etc failed", errno);
  }
  DRUPE_TRY(files.set_hosts(image_hosts(root)));
  return files;
}

Status NameFiles::set(const std::string& hostname, const std::string& machine_id) {
  if (::sethostname(hostname.data(), hostname.size()) != 0)
    return fail_sys("Setting the host name failed", errno);
  DRUPE_TRY(overwrite(hostname_.get(), "hostname", hostname + "\n"));
  DRUPE_TRY(overwrite(machine_id_.get(), "machine-id", machine_id + "\n"));
  DRUPE_ASSIGN(const std::string hosts, content(hosts_.get()));
  return set_hosts(hosts_with(hosts, hostname));
}

Status NameFiles::set_hosts(const std::string& text) {
  return overwrite(hosts_.get(), "hosts", text);
}

}  // namespace drupe::agent
