// What makes a fresh boot or a restored machine its own: clock, randomness, names.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/random.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <net/if.h>
#include <net/if_arp.h>

#include "agent/server.h"
#include "base/ids.h"

namespace drupe::agent {
namespace {

constexpr std::size_t kMaxHosts = 1024 * 1024;
constexpr std::string_view kOurLine = " # this sandbox";
constexpr const char* kInterface = "eth0";

Status add_entropy(const std::string& bytes) {
  struct {
    int entropy_count;
    int buf_size;
    std::array<char, 256> buf;
  } pool{static_cast<int>(bytes.size() * 8), static_cast<int>(bytes.size()), {}};
  std::memcpy(pool.buf.data(), bytes.data(), bytes.size());
  DRUPE_ASSIGN(const UniqueFd random, open_at(AT_FDCWD, "/dev/urandom", O_RDWR));
  if (::ioctl(random.get(), RNDADDENTROPY, &pool) != 0) return fail_sys("Adding randomness failed", errno);
  // Without this the old key would serve for up to a minute more.
  if (::ioctl(random.get(), RNDRESEEDCRNG, 0) != 0)
    return fail_sys("Reseeding the random generator failed", errno);
  return {};
}

Status set_mac(const std::string& mac) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::memcpy(request.ifr_name, kInterface, std::strlen(kInterface));
  request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
  std::memcpy(request.ifr_hwaddr.sa_data, mac.data(), mac.size());
  if (::ioctl(socket.get(), SIOCSIFHWADDR, &request) != 0 && errno != ENODEV)
    return fail_sys("Setting the network card's address failed", errno);
  return {};
}

/// /etc of the image, wherever it keeps it inside its own root.
Result<UniqueFd> open_etc(const Work& work) {
  open_how how{};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT;
  UniqueFd etc(static_cast<int>(::syscall(SYS_openat2, work.root(), "etc", &how, sizeof how)));
  if (!etc.valid()) return fail_sys("Opening the guest's /etc failed", errno);
  return etc;
}

/// Replaces the file, or the link that stands in its place, never what a link points to.
Status replace_small(int dir, const std::string& name, std::string_view text) {
  return replace_file(dir, name, text, Sync::kNo, 0644);
}

/// The same for files that hold one short line and are written at every start: a plain file of its own is
/// changed where it is. A new file and a rename run much more code of the kernel, which an emulated machine
/// that has just been restored translates for the first time.
Status write_small(int dir, const std::string& name, std::string_view text) {
  const auto fd = open_at(dir, name, O_RDWR | O_NONBLOCK | O_NOFOLLOW);
  struct stat info{};
  if (!fd || ::fstat(fd->get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink != 1)
    return replace_small(dir, name, text);
  const auto old = read_all(fd->get(), kMaxHosts);
  if (old && *old == text) return {};
  DRUPE_TRY(pwrite_all(fd->get(), text, 0));
  if (info.st_size != static_cast<off_t>(text.size()) &&
      ::ftruncate(fd->get(), static_cast<off_t>(text.size())) != 0)
    return fail_sys("Writing /etc/" + name + " failed", errno);
  return {};
}

std::string small_file(int dir, const std::string& name) {
  auto fd = open_at(dir, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  struct stat info{};
  if (!fd || ::fstat(fd->get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  auto text = read_all(fd->get(), kMaxHosts);
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

// In the agent itself and not in a child: a machine that has just been restored would translate the kernel's
// code for that first. A file system of the user's that hangs over /etc makes the restore fail, as it would
// anyway.
Status repair_names(const Work& work, const SetUpRequest& request) {
  if (::sethostname(request.hostname.data(), request.hostname.size()) != 0)
    return fail_sys("Setting the host name failed", errno);
  DRUPE_ASSIGN(const UniqueFd etc, open_etc(work));
  DRUPE_TRY(write_small(etc.get(), "hostname", request.hostname + "\n"));
  const std::string hosts = small_file(etc.get(), "hosts");
  const std::string wanted = hosts_with(hosts, request.hostname);
  if (wanted != hosts) DRUPE_TRY(write_small(etc.get(), "hosts", wanted));
  DRUPE_TRY(write_small(etc.get(), "machine-id", request.machine_id + "\n"));
  struct stat info{};
  if (::fstatat(etc.get(), "mtab", &info, AT_SYMLINK_NOFOLLOW) != 0 &&
      ::symlinkat("/proc/mounts", etc.get(), "mtab") != 0)
    return fail_sys("Writing /etc/mtab failed", errno);
  return {};
}

Status repair_kernel(const SetUpRequest& request) {
  const timespec now{static_cast<time_t>(request.realtime_ns / 1'000'000'000),
                     static_cast<long>(request.realtime_ns % 1'000'000'000)};
  if (::clock_settime(CLOCK_REALTIME, &now) != 0) return fail_sys("Setting the clock failed", errno);
  DRUPE_TRY(add_entropy(request.entropy));
  if (request.new_identity && !request.mac.empty()) DRUPE_TRY(set_mac(request.mac));
  return {};
}

std::string new_boot_id() {
  std::string raw = random_bytes(16);
  raw[6] = static_cast<char>((raw[6] & 0x0f) | 0x40);
  raw[8] = static_cast<char>((raw[8] & 0x3f) | 0x80);
  const std::string hex = to_hex(raw);
  return hex.substr(0, 8) + "-" + hex.substr(8, 4) + "-" + hex.substr(12, 4) + "-" + hex.substr(16, 4) + "-" +
         hex.substr(20) + "\n";
}

Status write_host_files(const Work& work, const SetHostRequest& request) {
  ::umask(022);
  DRUPE_ASSIGN(const UniqueFd etc, open_etc(work));
  if (!request.hosts.empty()) DRUPE_TRY(replace_small(etc.get(), "hosts", request.hosts));
  if (!request.resolv_conf.empty()) DRUPE_TRY(replace_small(etc.get(), "resolv.conf", request.resolv_conf));
  if (request.ca_bundle.empty()) return {};
  ::mkdirat(etc.get(), "ssl", 0755);
  ::mkdirat(etc.get(), "ssl/certs", 0755);
  return replace_small(etc.get(), "ssl/certs/ca-certificates.crt", request.ca_bundle);
}

}  // namespace drupe::agent
