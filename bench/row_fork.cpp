// Fork of a burdened parent into 1, 4 and 16 children, and twenty generations of fork of fork.
#include <algorithm>

#include "guest_work.h"
#include "host_facts.h"

namespace drupe::bench {
namespace {

constexpr double kStoppedMs = 150;
constexpr std::uint64_t kExtraDisk = 16ULL << 20;
constexpr int kGenerations = 20;
constexpr double kMib = 1 << 20;

struct ForkLines {
  Line stopped, answered, whole;
  Samples extra_mib, calls;
  std::vector<std::pair<std::string, Samples>> stages;  ///< In the order of the first fork.
};

double stage(const Engine& engine, const std::string& name) {
  for (const auto& [stage, ms] : engine.timings().stages)
    if (stage == name) return ms;
  return 0;
}

void note_stages(const Engine& engine, ForkLines& lines) {
  for (const auto& [name, ms] : engine.timings().stages) {
    auto found = std::ranges::find(lines.stages, name, &std::pair<std::string, Samples>::first);
    if (found == lines.stages.end()) found = lines.stages.insert(found, {name, {}});
    found->second.push_back(ms);
  }
}

Status fork_once(Bench& bench, const Guest& parent, std::uint32_t count, ForkLines& lines) {
  DRUPE_ASSIGN(const std::uint64_t before, free_bytes(bench.engine.home()));
  std::vector<std::unique_ptr<Guest>> children;
  const auto begun = Clock::now();
  DRUPE_ASSIGN(const auto made, bench.engine.fork(parent.id(), count, {}));
  lines.calls.push_back(ms_since(begun));
  for (const SandboxInfo& info : made) children.push_back(Guest::adopt(bench, info.record.id));
  for (const auto& child : children) {
    DRUPE_TRY(child->connect());
    DRUPE_TRY(child->ping());
  }
  const double whole = ms_since(begun);
  lines.whole.samples.push_back(whole);
  lines.answered.samples.push_back(whole - stage(bench.engine, "prepare") - stage(bench.engine, "snapshot"));
  note_stages(bench.engine, lines);
  lines.stopped.samples.push_back(stage(bench.engine, "parent stopped"));
  // Free room and not the size of files: the save has no name any more once the children have mapped it.
  DRUPE_ASSIGN(const std::uint64_t after, free_bytes(bench.engine.home()));
  lines.extra_mib.push_back((static_cast<double>(before) - static_cast<double>(after)) / kMib);
  return {};
}

Status measure(Bench& bench, std::uint32_t count, double limit_ms, std::uint32_t rounds) {
  ForkLines lines;
  const std::string into = "fork into " + std::to_string(count);
  lines.stopped.row = lines.answered.row = lines.whole.row = "fork";
  lines.stopped.what = into + ": parent stopped";
  // From there on only the children's and the parent's loading is left.
  lines.answered.what = into + ": saved -> all children answered";
  lines.whole.what = into + ": call -> all children answered";
  lines.stopped.target = Target{0, kStoppedMs};
  // The target says "all children answered" and not from when: both readings are judged.
  lines.answered.target = lines.whole.target = Target{0, limit_ms};
  double own_mib = 0;
  for (std::uint32_t i = 0; i < rounds; ++i) {
    // A parent of its own each time: what is saved is what the row says, not what the round before left.
    DRUPE_ASSIGN(const auto parent, start_burdened(bench, 512, "disk"));
    DRUPE_ASSIGN(const ShimInfo info, parent->info());
    own_mib = static_cast<double>(info.guest_private_bytes) / kMib;
    for (int k = 0; k < 3; ++k) DRUPE_TRY(fork_once(bench, *parent, count, lines));
  }
  lines.answered.details = {{"fork call", median(lines.calls)}};
  for (const auto& [name, samples] : lines.stages) lines.whole.details.emplace_back(name, median(samples));
  bench.report.add(std::move(lines.stopped));
  bench.report.add(std::move(lines.answered));
  bench.report.add(std::move(lines.whole));
  Line disk;
  disk.row = "fork";
  disk.what = into + ": extra disk";
  disk.unit = "MiB";
  disk.samples = lines.extra_mib;
  disk.yardstick_what = "parent's own pages";
  disk.yardstick = {own_mib};
  disk.target = Target{1, static_cast<double>(kExtraDisk) / kMib};
  bench.report.add(std::move(disk));
  return {};
}

Result<Samples> exec_times(Guest& guest) {
  Samples samples;
  for (int i = 0; i < 3; ++i) DRUPE_TRY(guest.timed({"/bench/static-true"}));
  for (int i = 0; i < 15; ++i) {
    DRUPE_ASSIGN(const double took, guest.timed({"/bench/static-true"}));
    samples.push_back(took);
  }
  return samples;
}

}  // namespace

Status row_fork(Bench& bench) {
  const std::uint32_t rounds = std::max(1U, (bench.settings.samples + 2) / 3);
  DRUPE_TRY(measure(bench, 1, 150, rounds));
  DRUPE_TRY(measure(bench, 4, 400, std::max(1U, rounds / 2)));
  return measure(bench, 16, 1200, std::max(1U, rounds / 5));
}

Status row_generations(Bench& bench) {
  DRUPE_ASSIGN(auto guest, Guest::start(bench));
  DRUPE_TRY(guest->install("static-true"));
  // A first child of the root stays, so that old and young are measured side by side.
  DRUPE_ASSIGN(const auto first, bench.engine.fork(guest->id(), 1, {}));
  const auto young = Guest::adopt(bench, first.front().record.id);
  DRUPE_TRY(young->connect());
  for (int i = 0; i < kGenerations; ++i) {
    DRUPE_ASSIGN(const auto made, bench.engine.fork(guest->id(), 1, {}));
    guest = Guest::adopt(bench, made.front().record.id);
    DRUPE_TRY(guest->connect());
    DRUPE_TRY(guest->timed({"/bench/static-true"}));
  }
  Line line;
  line.row = "generations";
  line.what = "exec after 20 generations of fork of fork";
  line.yardstick_what = "exec in the first generation";
  line.target = Target{1.2, 0};
  for (int i = 0; i < 4; ++i) {
    DRUPE_ASSIGN(const Samples old_times, exec_times(*guest));
    DRUPE_ASSIGN(const Samples young_times, exec_times(*young));
    line.samples.insert(line.samples.end(), old_times.begin(), old_times.end());
    line.yardstick.insert(line.yardstick.end(), young_times.begin(), young_times.end());
  }
  DRUPE_ASSIGN(const SandboxInfo info, bench.engine.find(guest->id()));
  line.details = {{"disk nodes", static_cast<double>(info.record.disk_chain.size())}};
  bench.report.add(std::move(line));
  return {};
}

}  // namespace drupe::bench
