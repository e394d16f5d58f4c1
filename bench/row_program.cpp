// What the program itself costs before it does anything.
#include "guest_work.h"

namespace drupe::bench {

Status row_program(Bench& bench) {
  Line version, list;
  version.row = list.row = "program";
  version.what = "drupe version";
  version.yardstick_what = "/bin/true as a process";
  version.target = Target{1, 10};
  list.what = "drupe ps";
  for (std::uint32_t i = 0; i < bench.settings.samples; ++i) {
    auto begun = Clock::now();
    DRUPE_TRY(run_drupe(bench, {"version"}));
    version.samples.push_back(ms_since(begun));
    begun = Clock::now();
    DRUPE_TRY(run_program({"/bin/true"}));
    version.yardstick.push_back(ms_since(begun));
    begun = Clock::now();
    DRUPE_TRY(run_drupe(bench, {"ps"}));
    list.samples.push_back(ms_since(begun));
  }
  bench.report.add(std::move(version));
  bench.report.add(std::move(list));
  return {};
}

}  // namespace drupe::bench
