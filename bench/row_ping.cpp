// Round trip of a request to the agent through the shim.
#include "guest_work.h"

namespace drupe::bench {

Status row_ping(Bench& bench) {
  DRUPE_ASSIGN(const auto guest, Guest::start(bench));
  Line line;
  line.row = "ping";
  line.what = "agent ping through the shim";
  line.target = Target{0, 1};
  for (int i = 0; i < 20; ++i) DRUPE_TRY(guest->ping());
  for (std::uint32_t i = 0; i < bench.settings.samples * 4; ++i) {
    DRUPE_ASSIGN(const double took, guest->ping());
    line.samples.push_back(took);
  }
  bench.report.add(std::move(line));
  return {};
}

}  // namespace drupe::bench
