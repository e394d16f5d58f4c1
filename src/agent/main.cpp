// drupe-init: PID 1 of the guest. src/agent/README.md has the tour.
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <malloc.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/boot.h"
#include "agent/caps.h"
#include "agent/cgroups.h"
#include "agent/server.h"
#include "agent/work.h"

namespace drupe::agent {
namespace {

constexpr int kHeap = 64 * 1024;

/// A heap that neither grows nor shrinks while it stays small: in a machine that has just been restored, each
/// page fault and brk() runs code of the kernel that has to be translated first. What large transfers took
/// is given back, since each child made by a fork inherits the pages, which costs time and, once either side
/// writes, memory.
void keep_heap() {
  ::mallopt(M_TRIM_THRESHOLD, kHeap * 4);
  ::mallopt(M_TOP_PAD, kHeap);
  ::mallopt(M_MMAP_THRESHOLD, kHeap * 2);
  void* const touched = std::malloc(kHeap);
  if (touched == nullptr) return;
  std::memset(touched, 1, kHeap);
  // The compiler may not drop what is never read.
  asm volatile("" : : "r"(touched) : "memory");
  std::free(touched);
}

Status serve() {
  keep_heap();
  mount_own_filesystems();
  load_modules();
  close_doors();
  drop_bounding_capabilities();
  // Its memory holds other streams' bytes; children between fork and exec inherit the mark.
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  ::signal(SIGPIPE, SIG_IGN);
  // A batch process does not preempt its writers at each wake-up: they fill their pipes first, and one frame
  // carries what would be eight. Children get the normal policy.
  const sched_param normal{};
  ::sched_setscheduler(0, SCHED_BATCH | SCHED_RESET_ON_FORK, &normal);
  const rlimit files{1024 * 1024, 1024 * 1024};
  ::setrlimit(RLIMIT_NOFILE, &files);
  DRUPE_ASSIGN(auto devices, find_devices());
  tune_disk();
  if (auto up = loopback_up(); !up) say(up.error().message);
  DRUPE_ASSIGN(auto cgroups, Cgroups::create());
  DRUPE_ASSIGN(auto work, Work::create(cgroups));
  DRUPE_ASSIGN(const auto loop, EventLoop::create());
  DRUPE_ASSIGN(auto repair, KernelRepair::create());
  Server server(*loop, std::move(cgroups), std::move(work), std::move(repair), std::move(devices));
  return server.run();
}

}  // namespace
}  // namespace drupe::agent

int main() {
  using namespace drupe::agent;
  if (::getpid() != 1) {
    say("this program is the init of a guest and does nothing elsewhere");
    return 64;
  }
  const auto served = serve();
  say(served ? "the loop ended" : to_string(served.error()));
  // The console has the reason; a machine that cannot serve ends rather than idles.
  power_off();
  return 1;
}
