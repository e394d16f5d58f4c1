#include <unistd.h>

#include "base/ids.h"
#include "engine/engine_impl.h"
#include "engine/file_lock.h"
#include "engine/names.h"
#include "engine/private_networks.h"

namespace drupe {
namespace {

/// Queue tickets of processes that were killed while they waited.
std::uint32_t sweep_tickets(const Home& home) {
  const auto names = home.names_in("locks");
  if (!names) return 0;
  std::uint32_t swept = 0;
  for (const std::string& name : *names) {
    if (!name.starts_with("ticket-")) continue;
    const auto lock = try_lock(home.dir(), "locks/" + name);
    if (!lock || !lock->valid()) continue;
    ::unlinkat(home.dir(), ("locks/" + name).c_str(), 0);
    ++swept;
  }
  return swept;
}

/// Links of names whose sandboxes have gone.
std::uint32_t sweep_names(const Home& home) {
  const auto lock = home.lock();
  const auto names = home.names_in("names");
  if (!lock || !names) return 0;
  std::uint32_t swept = 0;
  for (const std::string& name : *names) {
    const auto holder = lookup_name(home, name);
    if (!holder || *holder) continue;
    ::unlinkat(home.dir(), ("names/" + name).c_str(), 0);
    ++swept;
  }
  return swept;
}

}  // namespace

void EngineImpl::tidy_now_and_then() {
  // A sandbox that removes itself leaves its name's link and its promise, which are harmless one by one.
  constexpr int kOneIn = 32;
  if (static_cast<unsigned char>(random_bytes(1)[0]) % kOneIn != 0) return;
  sweep_names(home_);
  sweep_networks(home_);
  static_cast<void>(promised_memory(home_, true));
  home_.sweep_scratch();
}

Result<PruneReport> EngineImpl::prune_storage(std::chrono::seconds unused_for, Prune what) {
  reap_children();
  PruneReport report;
  if (what == Prune::kRemove) {
    DRUPE_TRY(list());  // mends every sandbox
    report.leftovers =
        home_.sweep_scratch() + sweep_tickets(home_) + sweep_names(home_) + sweep_networks(home_);
    DRUPE_TRY(promised_memory(home_, true));
  }
  DRUPE_ASSIGN(const BaseContext context, base_context());
  DRUPE_ASSIGN(const PruneReport pruned, prune_bases(home_, context.host, context.assets, unused_for, what));
  report.bases = pruned.bases;
  report.kernels = pruned.kernels;
  report.bytes = pruned.bytes;
  return report;
}

}  // namespace drupe
