#include "agent/repair.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <linux/random.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <net/if.h>
#include <net/if_arp.h>

#include "agent/names.h"
#include "base/ids.h"

namespace drupe::agent {
namespace {

constexpr const char* kInterface = "eth0";

Status add_entropy(int random, const std::string& bytes) {
  struct {
    int entropy_count;
    int buf_size;
    std::array<char, 256> buf;
  } pool{static_cast<int>(bytes.size() * 8), static_cast<int>(bytes.size()), {}};
  std::memcpy(pool.buf.data(), bytes.data(), bytes.size());
  if (::ioctl(random, RNDADDENTROPY, &pool) != 0) return fail_sys("Adding randomness failed", errno);
  // Without this the old key would serve for up to a minute more.
  if (::ioctl(random, RNDRESEEDCRNG, 0) != 0) return fail_sys("Reseeding the random generator failed", errno);
  return {};
}

Status set_mac(int socket, const std::string& mac) {
  ifreq request{};
  std::memcpy(request.ifr_name, kInterface, std::strlen(kInterface));
  request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
  std::memcpy(request.ifr_hwaddr.sa_data, mac.data(), mac.size());
  if (::ioctl(socket, SIOCSIFHWADDR, &request) != 0 && errno != ENODEV)
    return fail_sys("Setting the network card's address failed", errno);
  return {};
}

/// Replaces the file, or the link that stands in its place, never what a link points to.
Status replace_small(int dir, const std::string& name, std::string_view text) {
  return replace_file(dir, name, text, Sync::kNo, 0644);
}

}  // namespace

Result<KernelRepair> KernelRepair::create() {
  KernelRepair repair;
  DRUPE_ASSIGN(repair.random_, open_at(AT_FDCWD, "/dev/urandom", O_RDWR));
  repair.socket_ = UniqueFd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!repair.socket_.valid()) return fail_sys("Opening a socket failed", errno);
  return repair;
}

Status KernelRepair::apply(const SetUpRequest& request) const {
  const timespec now{static_cast<time_t>(request.realtime_ns / 1'000'000'000),
                     static_cast<long>(request.realtime_ns % 1'000'000'000)};
  if (::clock_settime(CLOCK_REALTIME, &now) != 0) return fail_sys("Setting the clock failed", errno);
  DRUPE_TRY(add_entropy(random_.get(), request.entropy));
  if (request.new_identity && !request.mac.empty()) DRUPE_TRY(set_mac(socket_.get(), request.mac));
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
  DRUPE_ASSIGN(const UniqueFd etc, open_etc(work.root(), O_RDONLY | O_DIRECTORY));
  if (request.resolv_conf.empty()) return {};
  return replace_small(etc.get(), "resolv.conf", request.resolv_conf);
}

}  // namespace drupe::agent
