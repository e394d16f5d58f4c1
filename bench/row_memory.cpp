// Own memory of idle forks, a minute after their last command.
#include <thread>

#include "guest_work.h"
#include "host_facts.h"

namespace drupe::bench {
namespace {

constexpr double kMib = 1 << 20;
constexpr std::uint32_t kForks = 5;

Line memory_line(const char* what, double limit) {
  Line line;
  line.row = "memory";
  line.what = what;
  line.unit = "MiB";
  line.target = Target{0, limit};
  return line;
}

}  // namespace

Status row_memory(Bench& bench) {
  DRUPE_ASSIGN(const auto parent, Guest::start(bench));
  DRUPE_TRY(parent->timed({"/bin/true"}));
  DRUPE_ASSIGN(const auto made, bench.engine.fork(parent->id(), kForks, {}));
  std::vector<std::unique_ptr<Guest>> forks;
  for (const SandboxInfo& info : made) {
    forks.push_back(Guest::adopt(bench, info.record.id));
    DRUPE_TRY(forks.back()->connect());
    DRUPE_TRY(forks.back()->timed({"/bin/true"}));
  }
  std::this_thread::sleep_for(std::chrono::seconds(bench.settings.idle_seconds));
  Line ram = memory_line("idle fork: guest RAM of its own", 1.5);
  Line qemu = memory_line("idle fork: qemu without guest RAM, private", 28);
  Line shim = memory_line("idle fork: shim, private", 3);
  Samples descriptors;
  for (const auto& fork : forks) {
    DRUPE_ASSIGN(const ShimInfo info, fork->info());
    DRUPE_ASSIGN(const ProcessMemory hypervisor, process_memory(info.hypervisor_pid));
    DRUPE_ASSIGN(const int shim_pid, parent_of(info.hypervisor_pid));
    DRUPE_ASSIGN(const ProcessMemory supervisor, process_memory(shim_pid));
    ram.samples.push_back(static_cast<double>(info.guest_private_bytes) / kMib);
    qemu.samples.push_back(
        (static_cast<double>(hypervisor.own) - static_cast<double>(info.guest_private_bytes)) / kMib);
    shim.samples.push_back(static_cast<double>(supervisor.own) / kMib);
    descriptors.push_back(static_cast<double>(count_entries("/proc/" + std::to_string(shim_pid) + "/fd")));
  }
  shim.details = {{"descriptors", median(descriptors)}};
  bench.report.add(std::move(ram));
  bench.report.add(std::move(qemu));
  bench.report.add(std::move(shim));
  return {};
}

}  // namespace drupe::bench
