#include <utility>

#include "engine/doctor.h"
#include "engine/engine_impl.h"
#include "engine/names.h"
#include "engine/options.h"

namespace drupe {

Result<std::unique_ptr<Engine>> Engine::open(EngineOptions options) {
  DRUPE_ASSIGN(Home home, Home::open(options.home));
  DRUPE_ASSIGN(Installation installation, find_installation(options));
  DRUPE_ASSIGN(auto loop, EventLoop::create());
  return std::make_unique<EngineImpl>(std::move(options), std::move(home), std::move(installation),
                                      std::move(loop));
}

EngineImpl::~EngineImpl() {
  // A created sandbox of this process that was never started goes with it.
  for (auto& [id, lock] : std::exchange(owned_, {})) {
    lock.reset();
    static_cast<void>(mend_sandbox(home_, id));
  }
  reap_children();
}

void EngineImpl::note(std::string_view text) const {
  if (options_.on_note) options_.on_note(text);
}

void EngineImpl::note_memory_step(std::uint64_t wanted_mib) const {
  const std::uint32_t given = shape_for(1, wanted_mib).memory_mib;
  if (given != wanted_mib)
    note("Memory comes in steps of 256 MiB: the sandbox gets " + std::to_string(given) + " MiB");
}

void EngineImpl::progress(std::string_view stage, std::uint64_t done, std::uint64_t total) const {
  if (options_.on_progress) options_.on_progress(stage, done, total);
}

Result<ImageStore*> EngineImpl::images() {
  if (!images_) {
    DRUPE_ASSIGN(images_, ImageStore::open(home_.path() + "/images"));
  }
  return images_.get();
}

Result<const Host*> EngineImpl::host() {
  if (!host_) {
    DRUPE_ASSIGN(host_, find_host(home_, false));
  }
  return &*host_;
}

Result<const GuestAssets*> EngineImpl::assets() {
  if (!assets_) {
    DRUPE_ASSIGN(assets_, provide_guest_assets(home_, installation_.guest_dir));
  }
  return &*assets_;
}

Result<BaseContext> EngineImpl::base_context() {
  DRUPE_ASSIGN(const Host* const machine, host());
  DRUPE_ASSIGN(const GuestAssets* const guest, assets());
  return BaseContext{home_, installation_, *guest, *machine,
                     [this](std::string_view stage) { progress(stage); }};
}

Result<SandboxInfo> EngineImpl::look_at(const std::string& id) {
  DRUPE_ASSIGN(MendResult mended, mend_sandbox(home_, id));
  if (!mended.note.empty()) note(mended.note);
  if (!mended.record) return no_sandbox(id);
  return SandboxInfo{std::move(*mended.record), mended.alive && !owned_.contains(id)};
}

Result<SandboxInfo> EngineImpl::find(std::string_view id_or_name) {
  DRUPE_ASSIGN(const std::string id, resolve_sandbox(home_, id_or_name));
  auto info = look_at(id);
  // One that goes while it is looked at is not there.
  if (!info && info.error().code == ErrorCode::kNotFound) return no_sandbox(id_or_name);
  return info;
}

Result<std::string> EngineImpl::resolve(std::string_view id_or_name) {
  return resolve_sandbox(home_, id_or_name);
}

Result<std::vector<SandboxInfo>> EngineImpl::list() {
  DRUPE_ASSIGN(const auto ids, home_.sandbox_ids());
  home_.sweep_scratch();
  std::vector<SandboxInfo> infos;
  for (const std::string& id : ids) {
    auto info = look_at(id);
    if (info)
      infos.push_back(std::move(*info));
    else if (info.error().code != ErrorCode::kNotFound)
      note(to_string(info.error()));
  }
  return infos;
}

void EngineImpl::reap_children() {
  std::erase_if(children_, [](const ChildProcess& child) {
    const auto status = try_wait(child);
    return !status || *status;
  });
}

}  // namespace drupe
