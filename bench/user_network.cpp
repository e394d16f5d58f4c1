#include "user_network.h"

#include <array>
#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/files.h"
#include "hypervisor/qemu/command.h"
#include "own_initramfs.h"

namespace drupe::bench {
namespace {

constexpr int kLimitMs = 300'000;
constexpr std::size_t kLongestLine = 4096;
// What the driver tells an emulated guest as well (src/hypervisor/qemu/command.cpp).
std::string parameters(std::uint64_t tsc_khz) {
  return "tsc_early_khz=" + std::to_string(tsc_khz) + " lpj=" + std::to_string(tsc_khz * 4) +
         " tsc=reliable no_timer_check console=ttyS0 loglevel=2 panic=-1 reboot=t random.trust_cpu=on "
         "audit=0 nowatchdog mitigations=off "
         "init_on_alloc=0 hardened_usercopy=off";
}

}  // namespace

Result<std::unique_ptr<UserNetwork>> UserNetwork::boot(const Files& files) {
  std::unique_ptr<UserNetwork> guest(new UserNetwork);
  DRUPE_ASSIGN(const std::string archive, own_initramfs(files.guest_dir, files.init));
  DRUPE_ASSIGN(const UniqueFd initramfs, open_at(AT_FDCWD, files.scratch, O_TMPFILE | O_RDWR));
  DRUPE_TRY(write_all(initramfs.get(), archive));
  int pair[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return fail_sys("Creating a socket pair failed", errno);
  guest->console_ = UniqueFd(pair[0]);
  const UniqueFd theirs(pair[1]);
  SpawnRequest request;
  request.program = files.qemu;
  request.argv = {files.qemu,
                  "-nodefaults",
                  "-no-user-config",
                  "-no-reboot",
                  "-display",
                  "none",
                  "-M",
                  "microvm,acpi=on,auto-kernel-cmdline=off",
                  "-accel",
                  "tcg,thread=multi,tb-size=64",
                  "-cpu",
                  kTcgCpu,
                  "-smp",
                  "1",
                  "-m",
                  "512M",
                  "-global",
                  "virtio-mmio.force-legacy=false",
                  "-kernel",
                  files.guest_dir + "/vmlinux",
                  "-initrd",
                  "/proc/self/fd/3",
                  "-append",
                  parameters(files.tsc_khz),
                  "-chardev",
                  "socket,id=console,fd=4",
                  "-serial",
                  "chardev:console",
                  "-netdev",
                  "user,id=net",
                  "-device",
                  "virtio-net-device,netdev=net"};
  request.env = {"PATH=/usr/bin:/bin", "LC_ALL=C"};
  request.fds = {{initramfs.get(), 3}, {theirs.get(), 4}, {2, 2}};
  DRUPE_ASSIGN(guest->child_, spawn(request));
  std::string line;
  do {
    DRUPE_ASSIGN(line, guest->read_line());
  } while (!line.starts_with("ready "));
  if (line != "ready 0") return fail(ErrorCode::kGuest, "The guest on the user network said '" + line + "'");
  return guest;
}

UserNetwork::~UserNetwork() {
  if (child_.pid < 0) return;
  kill_child(child_);
  static_cast<void>(wait_for(child_));
}

Result<std::string> UserNetwork::read_line() {
  while (heard_.find('\n') == std::string::npos) {
    pollfd watched{console_.get(), POLLIN, 0};
    std::array<char, 1024> bytes{};
    if (::poll(&watched, 1, kLimitMs) <= 0)
      return fail(ErrorCode::kTimeout, "The guest on the user network said nothing in time");
    const ssize_t got = ::read(console_.get(), bytes.data(), bytes.size());
    if (got <= 0 || heard_.size() > kLongestLine)
      return fail(ErrorCode::kGuest, "The guest on the user network ended; it said '" + heard_ + "'");
    heard_.append(bytes.data(), static_cast<std::size_t>(got));
  }
  const auto end = heard_.find('\n');
  std::string line = heard_.substr(0, end);
  heard_.erase(0, end + 1);
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

Result<std::vector<double>> UserNetwork::run(const std::string& command, std::uint16_t port,
                                             std::uint32_t count) {
  const std::string text = command + " " + std::to_string(port) + " " + std::to_string(count) + "\n";
  DRUPE_TRY(write_all(console_.get(), text));
  std::vector<double> numbers;
  while (true) {
    DRUPE_ASSIGN(const std::string line, read_line());
    if (line == "status 0") return numbers;
    if (line.starts_with("status "))
      return fail(ErrorCode::kGuest, "In the guest on the user network, " + command + " ended with " + line);
    numbers.push_back(std::strtod(line.c_str(), nullptr));
  }
}

}  // namespace drupe::bench
