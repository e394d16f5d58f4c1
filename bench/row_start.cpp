// Create and start of a sandbox through the engine, to the agent's first answer, against a bare clone's.
#include "clone_files.h"
#include "guest_work.h"
#include "hypervisor/qemu/qemu.h"

namespace drupe::bench {
namespace {

using Stages = std::vector<std::pair<std::string, Samples>>;

void note_stages(Stages& stages, const Timings& timings) {
  for (const auto& [name, ms] : timings.stages) {
    auto found = stages.begin();
    while (found != stages.end() && found->first != name) ++found;
    if (found == stages.end()) found = stages.insert(found, {name, {}});
    found->second.push_back(ms);
  }
}

}  // namespace

Status row_start(Bench& bench) {
  DRUPE_ASSIGN(const BaseFiles base, find_base_files(bench));
  QemuOptions options;
  options.program = qemu_program();
  options.preload = base.preload;
  options.tsc_khz = base.tsc_khz;
  DRUPE_ASSIGN(const auto hypervisor, make_qemu_hypervisor(options));
  Line line;
  line.row = "start";
  line.what = "engine: create + start -> first answer";
  line.yardstick_what = "bare clone -> first answer";
  Stages stages;
  for (std::uint32_t i = 0; i < bench.settings.samples; ++i) {
    double cpu = bench.cpu.ms();
    auto begun = Clock::now();
    DRUPE_ASSIGN(const auto guest, Guest::start(bench));
    DRUPE_TRY(guest->ping());
    line.samples.push_back(ms_since(begun));
    line.cpu.push_back(bench.cpu.ms() - cpu);
    note_stages(stages, bench.engine.timings());
    cpu = bench.cpu.ms();
    begun = Clock::now();
    DRUPE_ASSIGN(const auto clone, BareClone::start(bench.engine.loop(), *hypervisor, base.files));
    DRUPE_TRY(clone->ping());
    line.yardstick.push_back(ms_since(begun));
    line.yardstick_cpu.push_back(bench.cpu.ms() - cpu);
  }
  for (const auto& [name, samples] : stages) line.details.emplace_back(name, median(samples));
  bench.report.add(std::move(line));
  return {};
}

}  // namespace drupe::bench
