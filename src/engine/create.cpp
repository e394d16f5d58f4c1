#include <algorithm>
#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <stdio.h>

#include "base/failpoint.h"
#include "base/ids.h"
#include "engine/engine_impl.h"
#include "engine/host_trust.h"
#include "engine/names.h"
#include "engine/options.h"
#include "image/debian.h"

namespace drupe {
namespace {

constexpr int kNameTries = 16;
/// Record, log and the first clusters of the overlay.
constexpr std::uint64_t kLeastDiskRoom = std::uint64_t{64} << 20;

}  // namespace

Result<Image> EngineImpl::resolve_image(const SandboxOptions& options) {
  DRUPE_ASSIGN(ImageStore* const store, images());
  if (options.pull != PullPolicy::kAlways) {
    auto image = store->find(options.image);
    if (image || image.error().code != ErrorCode::kNotFound || options.pull == PullPolicy::kNever)
      return image;
  }
  PullOptions pull;
  pull.insecure = options.insecure_registry;
  pull.force = options.pull == PullPolicy::kAlways;
  pull.cancel = options_.cancel;
  pull.on_progress = [this](const Progress& report) { progress(report.what, report.done, report.total); };
  auto pulled = store->pull(options.image, pull);
  if (pulled || pulled.error().code == ErrorCode::kCancelled) return pulled;
  Error error = std::move(pulled).error().in("The image " + options.image + " could not be fetched");
  const auto recipes = debian_recipes();
  if (std::ranges::find(recipes, options.image) != recipes.end())
    error = std::move(error).with_next_step("drupe image build-debian " + options.image +
                                            " makes it from Debian's packages.");
  return std::unexpected(std::move(error));
}

Status EngineImpl::name_sandbox(SandboxRecord& record) const {
  if (!record.name.empty()) return take_name(home_, record.name, record.id);
  Status taken = fail(ErrorCode::kHost, "No free name was found");
  for (int i = 0; i < kNameTries && !taken; ++i) {
    record.name = i < kNameTries / 2 ? invent_name() : invent_name() + "_" + record.id.substr(0, 4);
    taken = take_name(home_, record.name, record.id);
  }
  return taken;
}

Status EngineImpl::publish(Home::Scratch& scratch, SandboxRecord& record) {
  DRUPE_ASSIGN(const UniqueFd names, home_.lock());
  DRUPE_TRY(name_sandbox(record));
  failpoint("engine.create.named");
  DRUPE_TRY(write_record(scratch.dir.get(), record));
  failpoint("engine.create.recorded");
  const std::string place = Home::sandbox(record.id);
  if (::renameat2(home_.dir(), scratch.path.c_str(), home_.dir(), place.c_str(), RENAME_NOREPLACE) != 0)
    return fail_sys("Placing the sandbox's directory failed", errno);
  scratch.path = place;
  return {};
}

// A member before it is there: one that is killed in between has left nothing that counts.
Status EngineImpl::publish_in(const std::vector<std::string>& names, Home::Scratch& scratch,
                              SandboxRecord& record) {
  if (names.empty()) return publish(scratch, record);
  DRUPE_ASSIGN(const UniqueFd lock, take_networks());
  DRUPE_ASSIGN(auto networks, wanted_networks(names));
  for (PrivateNetwork& network : networks) DRUPE_TRY(add_member(home_, network, record.id));
  failpoint("engine.create.joined");
  DRUPE_TRY(publish(scratch, record));
  for (PrivateNetwork& network : networks)
    if (const auto told = tell_untold(network, {}); !told) note(told.error().message);
  return {};
}

Result<SandboxInfo> EngineImpl::create(const SandboxOptions& options) {
  timings_ = {};
  StageClock clock(timings_);
  reap_children();
  DRUPE_TRY(check_options(options, std::thread::hardware_concurrency()));
  DRUPE_ASSIGN(NetworkRecord network, checked_network(options.network));
  // What cannot be read is told before anything is made.
  if (options.host_ca) DRUPE_TRY(host_trust(host_trust_source()));
  DRUPE_TRY(wanted_networks(options.networks));
  DRUPE_ASSIGN(const Host* const machine, host());
  if (options.require_hardware && machine->hypervisor.accelerator != Accelerator::kKvm)
    return fail(ErrorCode::kUnsupported,
                "This machine cannot isolate with hardware virtualization: " + machine->kvm_reason,
                machine->kvm_next_step.empty() ? "Leave --require hardware away to accept emulation."
                                               : machine->kvm_next_step);
  clock.mark("check");
  DRUPE_ASSIGN(const Image image, resolve_image(options));
  clock.mark("image");
  DRUPE_TRY(check_disk_room(home_, kLeastDiskRoom));

  SandboxRecord record;
  record.id = random_id();
  record.name = options.name;
  record.image_id = image.id;
  record.image_name = options.image;
  record.hostname = options.hostname.empty() ? record.id : options.hostname;
  record.machine_id = to_hex(random_bytes(16));
  record.created_ns = realtime_ns();
  record.disk_chain = {kImageFile};
  record.isolation = machine->isolation();
  record.network = std::move(network);
  DRUPE_TRY(apply_image(record, options, image.config, image.virtual_bytes));
  note_memory_step(options.memory_mib);

  DRUPE_ASSIGN(Home::Scratch scratch, home_.make_scratch("sandbox"));
  Status made = link_file(AT_FDCWD, image.disk_path, scratch.dir.get(), kImageFile);
  failpoint("engine.create.linked");
  if (made) made = publish_in(options.networks, scratch, record);
  if (!made) {
    static_cast<void>(home_.discard(scratch.path));
    return std::unexpected(std::move(made).error());
  }
  failpoint("engine.create.placed");
  tidy_now_and_then();
  if (record.auto_remove && !record.detached) owned_[record.id] = std::move(scratch.lock);
  clock.mark("directory");
  return SandboxInfo{std::move(record), false};
}

Status EngineImpl::prepare_claim(SandboxRecord& record, const SandboxOptions& options) {
  DRUPE_ASSIGN(ImageStore* const store, images());
  DRUPE_ASSIGN(const Image image, store->find(record.image_id));
  const std::uint64_t disk_bytes = record.disk_bytes;
  DRUPE_TRY(apply_image(record, options, image.config, image.virtual_bytes));
  record.disk_bytes = disk_bytes;
  // Its machine id has been its own since it was restored; so has its host name, unless another is asked for.
  if (!options.hostname.empty()) record.hostname = options.hostname;
  record.created_ns = realtime_ns();
  if (options.name.empty()) return {};  // the name it was made with is as good as any
  DRUPE_ASSIGN(const UniqueFd names, home_.lock());
  DRUPE_TRY(take_name(home_, options.name, record.id));
  record.name = options.name;
  return {};
}

void EngineImpl::forget_name(const std::string& name, const std::string& id) const {
  const auto names = home_.lock();
  if (names) drop_name(home_, name, id);
}

}  // namespace drupe
