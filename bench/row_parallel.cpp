// Twenty sandboxes made by twenty processes at once, against one after the other; and how long one takes to
// go.
#include "base/spawn.h"
#include "guest_work.h"

namespace drupe::bench {
namespace {

constexpr int kCount = 20;
constexpr double kFactor = 1.2;

SpawnRequest create_request(Bench& bench, int number) {
  SpawnRequest request;
  request.program = bench.settings.binary_dir + "/drupe";
  request.argv = {request.program,      "run",   "-d",  "--name", "bench-many-" + std::to_string(number),
                  bench.settings.image, "sleep", "1000"};
  request.env = drupe_environment(bench);
  request.fds = {{2, 2}};
  return request;
}

Result<double> make_many(Bench& bench, bool at_once) {
  std::vector<ChildProcess> children;
  const auto begun = Clock::now();
  for (int i = 0; i < kCount; ++i) {
    DRUPE_ASSIGN(ChildProcess child, spawn(create_request(bench, i)));
    if (!at_once) {
      DRUPE_ASSIGN(const int status, wait_for(child));
      if (status != 0) return fail(ErrorCode::kHost, "drupe run -d failed: " + describe_wait_status(status));
      continue;
    }
    children.push_back(std::move(child));
  }
  int failed = 0;
  for (const ChildProcess& child : children) {
    DRUPE_ASSIGN(const int status, wait_for(child));
    if (status != 0) ++failed;
  }
  const double took = ms_since(begun);
  if (failed != 0) return fail(ErrorCode::kHost, std::to_string(failed) + " of 20 creations at once failed");
  return took;
}

Status remove_many(Bench& bench, Samples& times) {
  for (int i = 0; i < kCount; ++i) {
    DRUPE_ASSIGN(const SandboxInfo info, bench.engine.find("bench-many-" + std::to_string(i)));
    const auto begun = Clock::now();
    DRUPE_TRY(bench.engine.remove(info.record.id, true));
    times.push_back(ms_since(begun));
  }
  return {};
}

}  // namespace

Status row_parallel(Bench& bench) {
  DRUPE_TRY(bench.engine.warm(bench.settings.image, 512, 1));
  Line line;
  line.row = "parallel";
  line.what = "20 sandboxes created at once";
  line.yardstick_what = "20 one after the other";
  line.target = Target{kFactor, 0};
  Line destroy;
  destroy.row = "parallel";
  destroy.what = "rm -f of a running sandbox";
  for (std::uint32_t i = 0; i < bench.settings.bulk_samples; ++i) {
    DRUPE_ASSIGN(const double together, make_many(bench, true));
    line.samples.push_back(together);
    DRUPE_TRY(remove_many(bench, destroy.samples));
    DRUPE_ASSIGN(const double apart, make_many(bench, false));
    line.yardstick.push_back(apart);
    DRUPE_TRY(remove_many(bench, destroy.samples));
  }
  bench.report.add(std::move(line));
  bench.report.add(std::move(destroy));
  return {};
}

}  // namespace drupe::bench
