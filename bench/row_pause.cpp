// Pause and resume of a sandbox with much memory touched and much disk written.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "clone_files.h"
#include "guest_work.h"
#include "hypervisor/qemu/qemu.h"

namespace drupe::bench {
namespace {

constexpr double kPauseMs = 150;
constexpr double kResumeMs = 120;
constexpr double kResumeAtOnceMs = 200;
constexpr std::chrono::seconds kDurableLimit{60};

/// Milliseconds to read `bytes` from the page cache and write them to a new file: what a save cannot be
/// faster than.
Result<double> copy_bytes(Bench& bench, std::uint64_t bytes) {
  static const std::string block(1U << 20, 'b');
  const std::string path = bench.settings.scratch + "/copy";
  DRUPE_ASSIGN(const UniqueFd out, open_at(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC));
  ::unlink(path.c_str());
  const auto begun = Clock::now();
  for (std::uint64_t done = 0; done < bytes; done += block.size()) DRUPE_TRY(write_all(out.get(), block));
  return ms_since(begun);
}

Result<std::uint64_t> delta_bytes(Bench& bench, const std::string& id) {
  DRUPE_ASSIGN(const SandboxInfo info, bench.engine.find(id));
  if (!info.record.saved) return fail(ErrorCode::kInvalidState, "The sandbox was not saved");
  struct stat file{};
  DRUPE_ASSIGN(const UniqueFd dir, bench.engine.open_directory(id));
  if (::fstatat(dir.get(), info.record.saved->delta_file.c_str(), &file, 0) != 0)
    return fail_sys("No delta file", errno);
  return static_cast<std::uint64_t>(file.st_blocks) * 512;
}

Status wait_until_durable(Bench& bench, const std::string& id) {
  const auto deadline = Clock::now() + kDurableLimit;
  while (Clock::now() < deadline) {
    DRUPE_ASSIGN(const SandboxInfo info, bench.engine.find(id));
    if (info.record.saved && info.record.saved->durable && !info.alive) return {};
    ::usleep(10'000);
  }
  return fail(ErrorCode::kTimeout, "The paused sandbox's files were not made durable");
}

struct Lines {
  Line pause, resume, at_once;
  Samples mib, resume_calls;
};

Status cycle(Bench& bench, Guest& guest, bool at_once, Lines& lines) {
  guest.disconnect();
  double cpu = bench.cpu.ms();
  auto begun = Clock::now();
  DRUPE_TRY(bench.engine.pause(guest.id()));
  lines.pause.samples.push_back(ms_since(begun));
  lines.pause.cpu.push_back(bench.cpu.ms() - cpu);
  if (!at_once) {
    DRUPE_ASSIGN(const std::uint64_t bytes, delta_bytes(bench, guest.id()));
    lines.mib.push_back(static_cast<double>(bytes) / (1 << 20));
    DRUPE_TRY(wait_until_durable(bench, guest.id()));
    DRUPE_ASSIGN(const double copied, copy_bytes(bench, bytes));
    lines.pause.yardstick.push_back(copied);
  }
  cpu = bench.cpu.ms();
  begun = Clock::now();
  DRUPE_TRY(bench.engine.resume(guest.id(), false));
  lines.resume_calls.push_back(ms_since(begun));
  DRUPE_TRY(guest.connect());
  DRUPE_TRY(guest.ping());
  Line& line = at_once ? lines.at_once : lines.resume;
  line.samples.push_back(ms_since(begun));
  line.cpu.push_back(bench.cpu.ms() - cpu);
  return {};
}

Status clone_yardstick(Bench& bench, Hypervisor& hypervisor, const CloneFiles& files, Line& line) {
  const double cpu = bench.cpu.ms();
  const auto begun = Clock::now();
  DRUPE_ASSIGN(const auto clone, BareClone::start(bench.engine.loop(), hypervisor, files));
  DRUPE_TRY(clone->ping());
  line.yardstick.push_back(ms_since(begun));
  line.yardstick_cpu.push_back(bench.cpu.ms() - cpu);
  return {};
}

std::vector<std::pair<std::string, double>> stage_details(const Engine& engine) {
  return engine.timings().stages;
}

Status measure(Bench& bench, std::uint32_t memory_mib, const std::string& writer, bool targets) {
  DRUPE_ASSIGN(const BaseFiles base, find_base_files(bench, memory_mib));
  QemuOptions options;
  options.program = qemu_program();
  options.preload = base.preload;
  options.tsc_khz = base.tsc_khz;
  DRUPE_ASSIGN(const auto hypervisor, make_qemu_hypervisor(options));
  DRUPE_ASSIGN(const auto guest, start_burdened(bench, memory_mib, writer));
  const std::string shape =
      std::to_string(memory_mib) + " MiB" + (writer == "cached" ? ", 500 MiB in page cache" : "");
  Lines lines;
  lines.pause.row = lines.resume.row = lines.at_once.row = "pause";
  lines.pause.what = "pause, " + shape;
  lines.pause.yardstick_what = "writing as many bytes to a file";
  lines.resume.what = "resume -> first answer, " + shape;
  lines.resume.yardstick_what = "bare clone of the base -> first answer";
  lines.at_once.what = "resume right after the pause, " + shape;
  if (targets) {
    lines.pause.target = Target{0, kPauseMs};
    lines.resume.target = Target{0, kResumeMs};
    lines.at_once.target = Target{0, kResumeAtOnceMs};
  }
  const std::uint32_t rounds = targets ? bench.settings.samples : bench.settings.bulk_samples * 2;
  for (std::uint32_t i = 0; i < rounds; ++i) {
    DRUPE_TRY(cycle(bench, *guest, i % 2 == 1, lines));
    DRUPE_TRY(clone_yardstick(bench, *hypervisor, base.files, lines.resume));
  }
  lines.pause.details = {{"saved MiB", median(lines.mib)}};
  lines.resume.details = stage_details(bench.engine);
  bench.report.add(std::move(lines.pause));
  bench.report.add(std::move(lines.resume));
  bench.report.add(std::move(lines.at_once));
  return {};
}

}  // namespace

Status row_pause(Bench& bench) {
  DRUPE_TRY(measure(bench, 256, "disk", true));
  DRUPE_TRY(measure(bench, 1024, "disk", true));
  return measure(bench, 1024, "cached", false);
}

}  // namespace drupe::bench
