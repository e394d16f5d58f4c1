#include "agent/boot.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <net/if.h>

#include "agent/sys.h"
#include "protocol/frame.h"

namespace drupe::agent {
namespace {

constexpr std::uint64_t kDeviceWaitNs = 10'000'000'000;
constexpr int kRecheckMs = 200;

void mount_or_say(const char* type, const char* at) {
  ::mkdir(at, 0755);
  if (::mount(type, at, type, MS_NOSUID | MS_NOEXEC, nullptr) != 0 && errno != EBUSY)
    say(std::string("mounting ") + at + " failed: " + std::strerror(errno));
}

void load_module(const std::string& path) {
  auto file = open_at(AT_FDCWD, path, O_RDONLY);
  if (!file) return say(file.error().message);
  if (::syscall(SYS_finit_module, file->get(), "", 0) != 0 && errno != EEXIST)
    say("loading " + path + " failed: " + std::strerror(errno));
  ::unlink(path.c_str());
}

/// The port's device node, when the kernel has told its name already.
UniqueFd open_port(std::string_view wanted) {
  DIR* ports = ::opendir("/sys/class/virtio-ports");
  if (ports == nullptr) return {};
  UniqueFd found;
  while (const dirent* entry = ::readdir(ports)) {
    const std::string node = entry->d_name;
    if (node[0] == '.') continue;
    std::string name = slurp(AT_FDCWD, "/sys/class/virtio-ports/" + node + "/name");
    while (!name.empty() && name.back() == '\n') name.pop_back();
    if (name != wanted) continue;
    auto opened = open_at(AT_FDCWD, "/dev/" + node, O_RDWR | O_NONBLOCK);
    if (opened) found = *std::move(opened);
  }
  ::closedir(ports);
  return found;
}

bool complete(Devices& devices) {
  if (!devices.control.valid()) devices.control = open_port(kControlPortName);
  if (!devices.bulk.valid()) devices.bulk = open_port(kBulkPortName);
  if (!devices.disk.valid()) {
    auto disk = open_at(AT_FDCWD, "/dev/vda", O_RDONLY);
    if (disk) devices.disk = *std::move(disk);
  }
  return devices.control.valid() && devices.bulk.valid() && devices.disk.valid();
}

}  // namespace

void mount_own_filesystems() {
  mount_or_say("proc", "/proc");
  mount_or_say("sysfs", "/sys");
  mount_or_say("devtmpfs", "/dev");
  const int console = ::open("/dev/console", O_RDWR | O_NOCTTY);
  const int null = ::open("/dev/null", O_RDWR);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  if (console >= 0) {
    ::dup2(console, STDOUT_FILENO);
    ::dup2(console, STDERR_FILENO);
  }
  if (console > STDERR_FILENO) ::close(console);
  if (null > STDERR_FILENO) ::close(null);
}

void load_modules() {
  std::string order = slurp(AT_FDCWD, "/mods/order");
  std::string_view rest = order;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() == rest.size() ? line.size() : line.size() + 1);
    if (!line.empty() && line.find('/') == std::string_view::npos)
      load_module("/mods/" + std::string(line) + (line.ends_with(".ko") ? "" : ".ko"));
  }
  [[maybe_unused]] const auto gone = remove_tree(AT_FDCWD, "/mods");
}

void close_doors() {
  // Each is best effort: a kernel without the file has nothing to close.
  [[maybe_unused]] auto done = put(AT_FDCWD, "/proc/sys/kernel/kexec_load_disabled", "1");
  done = put(AT_FDCWD, "/proc/sys/kernel/modules_disabled", "1");
  if (::mount("securityfs", "/sys/kernel/security", "securityfs", 0, nullptr) == 0) {
    done = put(AT_FDCWD, "/sys/kernel/security/lockdown", "integrity");
    ::umount2("/sys/kernel/security", MNT_DETACH);
  }
}

Result<Devices> find_devices() {
  // Subscribed before the first look, so that no announcement falls between look and wait.
  UniqueFd news(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = 1;
  if (!news.valid() || ::bind(news.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_sys("Listening for devices failed", errno);
  Devices devices;
  const std::uint64_t until = monotonic_ns() + kDeviceWaitNs;
  while (!complete(devices)) {
    if (monotonic_ns() > until)
      return fail(ErrorCode::kHost, std::string("The machine lacks ") +
                                        (devices.control.valid() ? "" : "its control port, ") +
                                        (devices.bulk.valid() ? "" : "its bulk port, ") +
                                        (devices.disk.valid() ? "or nothing else" : "its disk"));
    // A port's name comes without an announcement of its own in some kernels, hence the bound on the wait.
    pollfd waiting{news.get(), POLLIN, 0};
    ::poll(&waiting, 1, kRecheckMs);
    char text[4096];
    while (::recv(news.get(), text, sizeof text, 0) > 0) {
    }
  }
  return devices;
}

void tune_disk() {
  // The host schedules the disk; measuring its latency here only keeps a timer running. A kernel without the
  // file has none.
  [[maybe_unused]] const auto done = put(AT_FDCWD, "/sys/block/vda/queue/wbt_lat_usec", "0");
}

Status loopback_up() {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return fail_sys("Opening a socket failed", errno);
  ifreq request{};
  std::memcpy(request.ifr_name, "lo", 3);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0)
    return fail_sys("Starting the loopback interface failed", errno);
  return {};
}

}  // namespace drupe::agent
