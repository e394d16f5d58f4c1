// drupe-net: the network of one sandbox. Started by drupe-shim with a control socket (3) and the guest's link
// (4), see protocol/net_control.h and net/stack/link.h; not meant to be run by hand.
#include <csignal>
#include <cstdio>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/confine.h"
#include "base/log.h"
#include "net/program/net_process.h"

namespace drupe::net {
namespace {

constexpr int kControlFd = 3, kLinkFd = 4;
// 1,536 connections, 1,024 UDP flows, 1,024 queries, published ports, and room.
constexpr std::uint32_t kMaxOpenFiles = 8192;
constexpr rlim_t kMaxLogFile = 16U << 20;

Result<std::vector<std::string>> lock_down() {
  Confinement confinement;
  confinement.namespaces = false;
  confinement.empty_root = false;
  confinement.leave_root = false;
  confinement.allow_exec = false;
  confinement.only_network = true;
  confinement.non_dumpable = true;
  confinement.max_open_files = kMaxOpenFiles;
  return confine_self(confinement);
}

Status run() {
  DRUPE_ASSIGN(const auto loop, EventLoop::create());
  NetProcess process(*loop, UniqueFd(kControlFd), UniqueFd(kLinkFd), lock_down);
  return process.run();
}

}  // namespace
}  // namespace drupe::net

int main() {
  using namespace drupe;
  set_log_name("drupe-net");
  ::umask(077);
  // The one file that it can write to is the log that it shares with its shim.
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit log_bytes{net::kMaxLogFile, net::kMaxLogFile};
  ::setrlimit(RLIMIT_FSIZE, &log_bytes);
  ::signal(SIGPIPE, SIG_IGN);
  // It also ends when its control socket closes; this is for a parent that others hold that socket of.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  for (const int fd : {net::kControlFd, net::kLinkFd}) {
    if (::fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) continue;
    std::fputs("drupe-net serves one sandbox; it is started by drupe-shim, not by hand.\n", stderr);
    return 2;
  }
  if (const auto ran = net::run(); !ran) {
    log(LogLevel::kError, to_string(ran.error()));
    return 1;
  }
  return 0;
}
