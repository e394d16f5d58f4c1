#include <cerrno>
#include <cmath>
#include <thread>

#include <unistd.h>

#include "base/failpoint.h"
#include "engine/engine_impl.h"
#include "engine/file_lock.h"
#include "engine/host_trust.h"
#include "engine/options.h"

namespace drupe {
namespace {

/// A start by another process, or a shim that writes its last files, ends within this.
constexpr std::chrono::seconds kHoldWait{120};
constexpr std::chrono::milliseconds kHoldPoll{2};
constexpr std::uint32_t kBootDeadlineMs = 120'000;
/// Ten times the median of a restore on a loaded machine of two cores.
constexpr std::uint32_t kRestoreDeadlineMs = 20'000;
constexpr std::chrono::minutes kQueueWait{10};

std::string called(const SandboxRecord& record) {
  return record.name.empty() ? record.id : record.name;
}

std::unexpected<Error> runs_already(const SandboxRecord& record) {
  return fail(ErrorCode::kInvalidState, "The sandbox " + called(record) + " is running already");
}

}  // namespace

Result<EngineImpl::Held> EngineImpl::hold(const std::string& id) {
  Held held;
  held.id = id;
  DRUPE_ASSIGN(held.dir, home_.open_sandbox(id));
  if (const auto own = owned_.find(id); own != owned_.end()) {
    held.lock = std::move(own->second);
    owned_.erase(own);
    DRUPE_ASSIGN(held.record, read_own_record(held.dir.get(), id));
    return held;
  }
  const Deadline deadline = Clock::now() + kHoldWait;
  while (true) {
    DRUPE_ASSIGN(held.lock, try_lock(held.dir.get(), kLockFile));
    DRUPE_ASSIGN(held.record, read_own_record(held.dir.get(), id));
    if (held.lock.valid()) break;
    if (held.record.state == SandboxState::kRunning) return runs_already(held.record);
    if (Clock::now() >= deadline)
      return fail(ErrorCode::kBusy, "Another process works on the sandbox " + called(held.record),
                  "Try again in a moment.");
    // A shim that still flushes a pause lets go as soon as somebody knocks.
    static_cast<void>(ShimClient::connect(*loop_, held.dir.get()));
    std::this_thread::sleep_for(kHoldPoll);
  }
  DRUPE_ASSIGN(const bool lost, mend_locked(held.dir.get(), held.record));
  if (lost) note("The sandbox " + called(held.record) + " had lost its machine; its disk is intact.");
  return held;
}

Status EngineImpl::require_fitting_memory(const SandboxRecord& record) {
  DRUPE_ASSIGN(const Host* const machine, host());
  if (record.state_key == machine->hypervisor.state_key &&
      same_tsc(record.tsc_khz, machine->hypervisor.tsc_khz))
    return {};
  return fail(
      ErrorCode::kMemoryIncompatible,
      "The saved memory of " + called(record) + " does not fit this machine any more: " +
          (record.state_key == machine->hypervisor.state_key ? "the processor's clock has another frequency"
                                                             : "the hypervisor or the processor has changed"),
      "Its disk is intact: drupe resume --cold " + called(record) + " boots it.");
}

Result<BaseManifest> EngineImpl::base_for(const SandboxRecord& record, const std::string& image_disk) {
  DRUPE_ASSIGN(const BaseContext context, base_context());
  BaseRecipe recipe;
  recipe.image_id = record.image_id;
  recipe.image_disk = image_disk;
  recipe.shape = record.shape;
  if (auto found = find_base(context, recipe)) return found;
  // The record's environment may hold the user's secrets; a base snapshot is made with the image's own.
  DRUPE_ASSIGN(ImageStore* const store, images());
  if (const auto image = store->find(record.image_id)) {
    recipe.env = image->config.env;
    recipe.user = image->config.user;
    recipe.cwd = image->config.working_dir;
  }
  return ensure_base(context, recipe);
}

Status EngineImpl::prepare_from_base(Held& held, StageClock& clock) {
  const std::string disk = home_.path() + "/" + Home::sandbox(held.id) + "/" + kImageFile;
  DRUPE_ASSIGN(const BaseManifest manifest, base_for(held.record, disk));
  clock.mark("base");
  DRUPE_TRY(link_base(home_, manifest, held.dir.get(), held.record));
  failpoint("engine.start.linked");
  return write_record(held.dir.get(), held.record);
}

ShimSpec EngineImpl::spec_for(const Held& held, const StartMode& mode, const Host& machine) const {
  ShimSpec spec;
  spec.mode = mode.mode;
  spec.start_main_on_attach = mode.main_on_attach;
  spec.owner_bound = mode.owner_bound;
  spec.owner_pid = mode.owner_bound ? ::getpid() : 0;
  const bool boots = mode.mode == LaunchMode::kBoot;
  spec.start_deadline_ms = boots ? kBootDeadlineMs : kRestoreDeadlineMs;
  spec.restore_retries = boots ? 0 : 1;
  spec.accelerator = machine.hypervisor.accelerator;
  spec.tsc_khz = machine.hypervisor.tsc_khz;
  spec.qemu_path = machine.qemu_path;
  spec.preload_path = installation_.preload_path;
  spec.net_path = installation_.net_path;
  spec.net = net_spec_for(held.record.network, held.networks);
  spec.record_dir_path = home_.path() + "/" + Home::sandbox(held.id);
  return spec;
}

Status EngineImpl::launch(Held& held, const StartMode& mode, StageClock& clock) {
  // With the sandbox's lock: whoever changes them from now on finds it running, or is found below.
  DRUPE_ASSIGN(held.networks, networks_of(home_, held.id));
  if (held.record.network.mode != NetworkMode::kNone || !held.networks.empty())
    DRUPE_TRY(require_net_program());
  DRUPE_ASSIGN(const Host* const machine, host());
  ShimSpec spec = spec_for(held, mode, *machine);
  // A guest that goes on has them already.
  if (held.record.host_ca && (mode.mode == LaunchMode::kBoot || mode.mode == LaunchMode::kFromBase)) {
    DRUPE_ASSIGN(const TrustBundle trust, host_trust(host_trust_source()));
    spec.trust = trust.encode();
  }
  DRUPE_TRY(promise_memory(home_, held.id, held.record.shape.memory_mib));
  clock.mark("admit");
  failpoint("engine.start.promised");
  const auto try_launch = [&]() -> Status {
    DRUPE_ASSIGN(const StartSlot slot, StartSlot::take(home_, Clock::now() + kQueueWait));
    clock.mark("queue");
    DRUPE_ASSIGN(StartingShim shim,
                 StartingShim::start(installation_, held.dir.get(), held.lock.get(), spec));
    held.lock.reset();  // the shim's alone from here on
    clock.mark("spawn");
    failpoint("engine.start.spawned");
    DRUPE_ASSIGN(const ShimStatus status, shim.finish());
    double before = 0;
    for (const auto& text : status.notes) note(text);
    for (const auto& [stage, at] : status.timings) {
      timings_.stages.emplace_back("shim " + stage, at - before);
      before = at;
    }
    clock.mark("start");
    children_.push_back(shim.take_child());
    if (status.error) return std::unexpected(*status.error);
    return {};
  };
  Status launched = try_launch();
  if (launched)
    tell_after_start(held.id, held.networks);
  else
    release_promise(home_, held.id, held.record.shape.memory_mib);
  return launched;
}

Result<Timings> EngineImpl::start(const std::string& id, bool main_on_attach, bool owner_bound) {
  timings_ = {};
  StageClock clock(timings_);
  reap_children();
  DRUPE_ASSIGN(Held held, hold(id));
  clock.mark("lock");
  StartMode mode{LaunchMode::kFromBase, main_on_attach, owner_bound};
  switch (held.record.state) {
    case SandboxState::kRunning:
      return runs_already(held.record);
    case SandboxState::kPaused:
      return fail(ErrorCode::kInvalidState, "The sandbox " + called(held.record) + " is paused",
                  "drupe resume " + called(held.record) + " lets it go on.");
    case SandboxState::kCreated:
      DRUPE_TRY(prepare_from_base(held, clock));
      break;
    case SandboxState::kExited:
      mode.mode = LaunchMode::kBoot;
      forget_memory(held.record);
      DRUPE_TRY(write_record(held.dir.get(), held.record));
      sweep_files(held.dir.get(), held.record);
      progress("Booting");
      break;
  }
  clock.mark("files");
  Status launched = launch(held, mode, clock);
  if (!launched && launched.error().code == ErrorCode::kMemoryIncompatible &&
      mode.mode == LaunchMode::kFromBase) {
    DRUPE_TRY(home_.discard(Home::base(held.record.base_key)));
    DRUPE_ASSIGN(held, hold(id));
    DRUPE_TRY(prepare_from_base(held, clock));
    launched = launch(held, mode, clock);
  }
  if (!launched) {
    // A sandbox that was to go at its end has come to it.
    if (held.record.auto_remove && !held.record.detached) static_cast<void>(mend_sandbox(home_, id));
    return std::unexpected(std::move(launched).error());
  }
  return timings_;
}

Result<Timings> EngineImpl::resume(const std::string& id, bool cold) {
  timings_ = {};
  StageClock clock(timings_);
  reap_children();
  DRUPE_ASSIGN(Held held, hold(id));
  if (held.record.state != SandboxState::kPaused)
    return fail(ErrorCode::kInvalidState, "The sandbox " + called(held.record) + " is not paused",
                held.record.state == SandboxState::kExited
                    ? "drupe start " + called(held.record) + " boots it."
                    : "");
  clock.mark("lock");
  StartMode mode{LaunchMode::kResume};
  if (cold)
    mode.mode = LaunchMode::kBoot;  // the shim drops the saved memory once it runs
  else
    DRUPE_TRY(require_fitting_memory(held.record));
  DRUPE_TRY(launch(held, mode, clock));
  return timings_;
}

Result<Timings> EngineImpl::warm(const std::string& name, std::uint64_t memory_mib, double cpus) {
  timings_ = {};
  StageClock clock(timings_);
  SandboxOptions options;
  options.image = name;
  DRUPE_ASSIGN(const Image image, resolve_image(options));
  clock.mark("image");
  DRUPE_ASSIGN(const BaseContext context, base_context());
  BaseRecipe recipe;
  recipe.image_id = image.id;
  recipe.image_disk = image.disk_path;
  recipe.env = image.config.env;
  recipe.user = image.config.user;
  recipe.cwd = image.config.working_dir;
  recipe.shape = shape_for(cpus, memory_mib);
  note_memory_step(memory_mib);
  DRUPE_TRY(ensure_base(context, recipe));
  clock.mark("base");
  return timings_;
}

}  // namespace drupe
