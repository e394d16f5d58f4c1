#include "agent/cgroups.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

namespace drupe::agent {
namespace {

constexpr std::size_t kPooled = 4;
constexpr std::uint64_t kMiB = 1024 * 1024;
constexpr unsigned kMaxProcesses = 16384;

Result<UniqueFd> make_cgroup(int parent, const std::string& name) {
  if (::mkdirat(parent, name.c_str(), 0755) != 0 && errno != EEXIST)
    return fail_sys("Making the cgroup " + name + " failed", errno);
  return open_at(parent, name, O_DIRECTORY | O_RDONLY);
}

std::uint64_t total_memory() {
  struct sysinfo info{};
  ::sysinfo(&info);
  return static_cast<std::uint64_t>(info.totalram) * info.mem_unit;
}

// A limit that this kernel lacks is one fewer; the console names it.
void try_put(int dir, const std::string& file, const std::string& text) {
  if (auto done = put(dir, file, text); !done) say(done.error().message);
}

}  // namespace

void ExecCgroup::kill() const {
  [[maybe_unused]] const auto done = put(dir.get(), "cgroup.kill", "1");
}

bool ExecCgroup::oom_killed() {
  settled = !populated();
  const std::uint64_t before = std::exchange(oom_kills, value_of(reread(memory_events.get()), "oom_kill"));
  return oom_kills > before;
}

bool ExecCgroup::populated() const {
  return value_of(reread(events.get()), "populated") != 0;
}

Result<Cgroups> Cgroups::create() {
  ::mkdir("/cg", 0755);
  if (::mount("none", "/cg", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, "nsdelegate") != 0)
    return fail_sys("Mounting the cgroup file system failed", errno);
  Cgroups groups;
  DRUPE_ASSIGN(groups.root_, open_at(AT_FDCWD, "/cg", O_DIRECTORY | O_RDONLY));
  for (const char* controller : {"+memory", "+pids", "+cpu"})
    try_put(groups.root_.get(), "cgroup.subtree_control", controller);
  DRUPE_ASSIGN(groups.agent_, make_cgroup(groups.root_.get(), "agent"));
  DRUPE_ASSIGN(groups.work_, make_cgroup(groups.root_.get(), "work"));
  DRUPE_TRY(put(groups.agent_.get(), "cgroup.procs", "0"));
  const std::uint64_t total = total_memory();
  const std::uint64_t reserve = std::clamp<std::uint64_t>(total / 16, 24 * kMiB, 128 * kMiB);
  try_put(groups.agent_.get(), "cpu.weight", "10000");
  try_put(groups.agent_.get(), "memory.min", std::to_string(reserve / 2));
  try_put(groups.work_.get(), "memory.max",
          std::to_string(total > 2 * reserve ? total - reserve : total / 2));
  try_put(groups.work_.get(), "pids.max", std::to_string(kMaxProcesses));
  // The kernel's own bounds must not bite first, or a fork bomb would keep the agent from forking.
  try_put(AT_FDCWD, "/proc/sys/kernel/threads-max", std::to_string(kMaxProcesses + 2048));
  DRUPE_ASSIGN(groups.freeze_, open_at(groups.work_.get(), "cgroup.freeze", O_WRONLY));
  DRUPE_ASSIGN(groups.events_, open_at(groups.work_.get(), "cgroup.events", O_RDONLY));
  return groups;
}

Status Cgroups::settle(pid_t work_init) {
  DRUPE_ASSIGN(const UniqueFd init, make_cgroup(work_.get(), "init"));
  DRUPE_TRY(put(init.get(), "cgroup.procs", std::to_string(work_init)));
  for (const char* controller : {"+memory", "+pids", "+cpu"})
    try_put(work_.get(), "cgroup.subtree_control", controller);
  DRUPE_ASSIGN(tasks_, make_cgroup(work_.get(), "tasks"));
  DRUPE_ASSIGN(auto first, make());
  free_.push_back(std::move(first));
  return {};
}

Result<std::unique_ptr<ExecCgroup>> Cgroups::make() {
  auto cgroup = std::make_unique<ExecCgroup>();
  cgroup->name = "x" + std::to_string(next_++);
  DRUPE_ASSIGN(cgroup->dir, make_cgroup(work_.get(), cgroup->name));
  DRUPE_ASSIGN(cgroup->memory_events, open_at(cgroup->dir.get(), "memory.events", O_RDONLY));
  DRUPE_ASSIGN(cgroup->events, open_at(cgroup->dir.get(), "cgroup.events", O_RDONLY));
  return cgroup;
}

Result<std::unique_ptr<ExecCgroup>> Cgroups::acquire() {
  std::erase_if(lingering_, [&](std::unique_ptr<ExecCgroup>& old) {
    // What was killed since its command ended is no later command's.
    [[maybe_unused]] const bool since = old->oom_killed();
    if (!old->settled) return false;
    if (free_.size() < kPooled) {
      free_.push_back(std::move(old));
      return true;
    }
    return ::unlinkat(work_.get(), old->name.c_str(), AT_REMOVEDIR) == 0;
  });
  if (free_.empty()) return make();
  auto cgroup = std::move(free_.back());
  free_.pop_back();
  cgroup->settled = false;
  return cgroup;
}

void Cgroups::release(std::unique_ptr<ExecCgroup> cgroup) {
  auto& list = !cgroup->settled || free_.size() >= kPooled ? lingering_ : free_;
  list.push_back(std::move(cgroup));
}

Status Cgroups::set_frozen(bool frozen) {
  // Through a descriptor that is kept: opening runs much of the kernel's code, which an emulated machine that
  // has just been restored translates for the first time.
  if (::pwrite(freeze_.get(), frozen ? "1" : "0", 1, 0) != 1)
    return fail_sys("Freezing or thawing the user's processes failed", errno);
  return {};
}

bool Cgroups::frozen() const {
  return value_of(reread(events_.get()), "frozen") != 0;
}

void Cgroups::kill_work() const {
  [[maybe_unused]] const auto done = put(work_.get(), "cgroup.kill", "1");
}

}  // namespace drupe::agent
