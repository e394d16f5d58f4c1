// A claim from the pool to the first output of a command, against one exec in a running sandbox.
#include "engine/pool.h"
#include "guest_work.h"

namespace drupe::bench {
namespace {

const std::vector<std::string> kCommand = {"/bin/echo", "here"};

Status claim_once(Bench& bench, Pool& pool, Line& line, Samples& claims) {
  if (!pool.wait_ready(1, Clock::now() + std::chrono::seconds(60)))
    return fail(ErrorCode::kTimeout, "The pool did not fill: " + pool.status().last_error);
  SandboxOptions options;
  options.image = bench.settings.image;
  options.idle = true;
  options.auto_remove = true;
  const auto begun = Clock::now();
  DRUPE_ASSIGN(const Pool::Claim claim, pool.claim(bench.engine, options));
  const double claimed = ms_since(begun);
  DRUPE_ASSIGN(const double first, first_output(bench, *claim.client, kCommand));
  line.samples.push_back(claimed + first);
  claims.push_back(claimed);
  return bench.engine.remove(claim.sandbox.record.id, true);
}

}  // namespace

Status row_pool(Bench& bench) {
  DRUPE_ASSIGN(const auto guest, Guest::start(bench));
  for (int i = 0; i < 4; ++i) DRUPE_TRY(guest->first_output(kCommand));
  EngineOptions engine;
  engine.home = bench.engine.home();
  engine.binary_dir = bench.settings.binary_dir;
  PoolOptions options;
  options.image = bench.settings.image;
  options.size = 1;
  options.exercises = {kCommand, kCommand, kCommand};
  DRUPE_ASSIGN(const auto pool, Pool::create(engine, options));
  Line line;
  line.row = "pool";
  line.what = "claim from the pool -> first output";
  line.yardstick_what = "exec in a running sandbox -> first output";
  line.target = Target{1, 5};
  Samples claims;
  for (std::uint32_t i = 0; i < bench.settings.samples; ++i) {
    DRUPE_TRY(claim_once(bench, *pool, line, claims));
    // While the pool refills: both cores are as busy for neither.
    if (!pool->wait_ready(1, Clock::now() + std::chrono::seconds(60)))
      return fail(ErrorCode::kTimeout, "The pool did not fill: " + pool->status().last_error);
    DRUPE_ASSIGN(const double first, guest->first_output(kCommand));
    line.yardstick.push_back(first);
  }
  line.details = {{"claim alone", median(claims)}};
  bench.report.add(std::move(line));
  return {};
}

}  // namespace drupe::bench
