// `drupe run` from a base snapshot, process start to exit, against the same command in a bare clone of the
// same snapshot.
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "clone_files.h"
#include "guest_work.h"

namespace drupe::bench {
namespace {

constexpr double kAllowanceMs = 60;

struct Case {
  const char* what;
  std::vector<std::string> argv;
  std::string output;
};

Status check_output(const std::string& got, const Case& test) {
  if (got == test.output) return {};
  return fail(ErrorCode::kHost, std::string(test.what) + " printed: " + got);
}

/// Medians of the stages that `--json` tells, over a few runs of their own.
Result<std::vector<std::pair<std::string, double>>> stages(Bench& bench, const Case& test,
                                                           std::size_t sandboxes) {
  std::vector<std::pair<std::string, Samples>> all;
  for (int i = 0; i < 5; ++i) {
    std::vector<std::string> argv = {"run", "--json", bench.settings.image};
    argv.insert(argv.end(), test.argv.begin(), test.argv.end());
    DRUPE_ASSIGN(const std::string text, run_drupe(bench, argv));
    settle(bench, sandboxes);
    const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("timings")) continue;
    for (const auto& [name, value] : json["timings"].items()) {
      if (!value.is_number()) continue;
      auto found =
          std::find_if(all.begin(), all.end(), [&](const auto& entry) { return entry.first == name; });
      if (found == all.end()) found = all.insert(all.end(), {name, {}});
      found->second.push_back(value.get<double>());
    }
  }
  std::vector<std::pair<std::string, double>> medians;
  for (const auto& [name, samples] : all) medians.emplace_back(name, median(samples));
  return medians;
}

Status measure(Bench& bench, const BaseFiles& base, const Case& test) {
  Line line;
  line.row = "run";
  line.what = std::string("drupe run ") + test.what;
  line.yardstick_what = "bare qemu clone";
  line.target = Target{1, kAllowanceMs};
  const std::size_t sandboxes = count_sandboxes(bench);
  std::vector<std::string> ours = {"run", bench.settings.image};
  ours.insert(ours.end(), test.argv.begin(), test.argv.end());
  std::vector<std::string> bare = base.clone_command(bench);
  bare.insert(bare.end(), test.argv.begin(), test.argv.end());
  for (std::uint32_t i = 0; i < bench.settings.samples; ++i) {
    double cpu = bench.cpu.ms();
    auto begun = Clock::now();
    DRUPE_ASSIGN(const std::string out, run_drupe(bench, ours));
    line.samples.push_back(ms_since(begun));
    DRUPE_TRY(check_output(out, test));
    settle(bench, sandboxes);
    line.cpu.push_back(bench.cpu.ms() - cpu);
    cpu = bench.cpu.ms();
    begun = Clock::now();
    DRUPE_ASSIGN(const std::string bare_out, run_program(bare));
    line.yardstick.push_back(ms_since(begun));
    DRUPE_TRY(check_output(bare_out, test));
    settle(bench, sandboxes);
    line.yardstick_cpu.push_back(bench.cpu.ms() - cpu);
  }
  DRUPE_ASSIGN(line.details, stages(bench, test, sandboxes));
  bench.report.add(std::move(line));
  return {};
}

}  // namespace

Status row_run(Bench& bench) {
  DRUPE_ASSIGN(const BaseFiles base, find_base_files(bench));
  DRUPE_TRY(measure(bench, base, {"/bin/true", {"/bin/true"}, ""}));
  return measure(bench, base, {"python3 -c 'print(6*7)'", {"python3", "-c", "print(6*7)"}, "42\n"});
}

}  // namespace drupe::bench
