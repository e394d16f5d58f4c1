// Exec of a static program that does nothing, against the same fork + exec timed inside the guest.
#include <cstdlib>
#include <sstream>

#include "guest_work.h"

namespace drupe::bench {

Status row_exec(Bench& bench) {
  DRUPE_ASSIGN(const auto guest, Guest::start(bench));
  DRUPE_TRY(guest->install("static-true"));
  DRUPE_TRY(guest->install("fork-timer"));
  Line line;
  line.row = "exec";
  line.what = "exec of a static true in a running sandbox";
  line.yardstick_what = "fork + exec + wait timed inside the guest";
  line.target = Target{1.5, 2};
  for (int i = 0; i < 5; ++i) DRUPE_TRY(guest->timed({"/bench/static-true"}));
  DRUPE_TRY(guest->run({"/bench/fork-timer", "/bench/static-true", "5"}));
  constexpr std::uint32_t kBatch = 5;
  for (std::uint32_t i = 0; i < bench.settings.samples * 2; i += kBatch) {
    for (std::uint32_t k = 0; k < kBatch; ++k) {
      DRUPE_ASSIGN(const double took, guest->timed({"/bench/static-true"}));
      line.samples.push_back(took);
    }
    DRUPE_ASSIGN(const ExecResult result,
                 guest->run({"/bench/fork-timer", "/bench/static-true", std::to_string(kBatch)}));
    std::istringstream text(result.out);
    double us = 0;
    while (text >> us) line.yardstick.push_back(us / 1000);
  }
  bench.report.add(std::move(line));
  return {};
}

}  // namespace drupe::bench
