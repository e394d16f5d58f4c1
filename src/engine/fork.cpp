#include "base/failpoint.h"
#include "engine/fork_parts.h"
#include "engine/names.h"

namespace drupe {
namespace {

constexpr std::uint32_t kMostChildren = 64;
constexpr int kLinkTries = 2;

}  // namespace

// Starting the first children's processes is work for the processors while the guest flushes; loading the
// save is for all of them at once, the parent's next machine among them. No user work of a child runs before
// the parent's saved machine is known to be out of the way.
Result<std::vector<SandboxInfo>> EngineImpl::fork_once(ForkPlan& plan, StageClock& clock) {
  ForkSource source(*this);
  DRUPE_TRY(source.begin(plan.parent));
  ForkChildren children(*this, plan);
  if (source.runs()) children.prepare(source);
  clock.mark("prepare");
  DRUPE_TRY(source.await_saved());
  clock.mark("snapshot");
  failpoint("engine.fork.snapshot");
  DRUPE_TRY(require_fitting_memory(source.parent()));
  DRUPE_TRY(children.begin_prepared(source));
  DRUPE_TRY(source.await_moved());
  clock.mark("moved");
  // The others' files only now: what is done before makes the parent's standstill longer.
  DRUPE_TRY(children.place(source));
  clock.mark("files");
  failpoint("engine.fork.placed");
  children.let_run();
  children.run();
  clock.mark("children");
  DRUPE_TRY(source.finish(timings_));
  clock.mark("parent");
  return children.release();
}

Result<std::vector<SandboxInfo>> EngineImpl::fork(const std::string& id, std::uint32_t count,
                                                  const std::vector<std::string>& names,
                                                  const ForkOptions& options) {
  timings_ = {};
  StageClock clock(timings_);
  reap_children();
  if (count < 1 || count > kMostChildren)
    return fail(ErrorCode::kInvalidArgument, "A fork makes 1 to 64 children, not " + std::to_string(count));
  if (!names.empty() && names.size() != count)
    return fail(ErrorCode::kInvalidArgument,
                std::to_string(names.size()) + " names do not fit " + std::to_string(count) + " children");
  for (const std::string& name : names) DRUPE_TRY(check_name(name));
  DRUPE_TRY(host());

  // Before the parent is stopped for nothing.
  for (const std::string& name : names) DRUPE_TRY(check_free_name(home_, name, {}));
  ForkPlan plan{.parent = id, .count = count, .names = names, .options = options, .network = {}};
  if (options.network) {
    if (!options.network->publish.empty())
      return fail(ErrorCode::kUnsupported, "Ports are published when a sandbox is made");
    DRUPE_ASSIGN(plan.network, checked_network(*options.network));
  }
  auto forked = fork_once(plan, clock);
  for (int i = 0; !forked && plan.vanished && i < kLinkTries; ++i) forked = fork_once(plan, clock);
  return forked;
}

}  // namespace drupe
