// The engine's parts behind engine.h. One class, its operations in engine.cpp (opening, images, looking up),
// create.cpp, start.cpp, lifecycle.cpp (pause, stop, remove, rename, wait) and fork.cpp.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/admission.h"
#include "engine/base_snapshot.h"
#include "engine/doctor.h"
#include "engine/engine.h"
#include "engine/mend.h"
#include "engine/private_networks.h"
#include "engine/sandbox_files.h"
#include "engine/shim_launch.h"
#include "engine/stage_clock.h"
#include "image/store.h"

namespace drupe {

class EngineImpl final : public Engine {
 public:
  EngineImpl(EngineOptions options, Home home, Installation installation, std::unique_ptr<EventLoop> loop)
      : options_(std::move(options)),
        home_(std::move(home)),
        installation_(std::move(installation)),
        loop_(std::move(loop)) {}
  ~EngineImpl() override;

  Result<ImageStore*> images() override;
  [[nodiscard]] const std::string& home() const override { return home_.path(); }
  EventLoop& loop() override { return *loop_; }
  [[nodiscard]] const Timings& timings() const override { return timings_; }

  Result<SandboxInfo> create(const SandboxOptions& options) override;
  Result<Timings> start(const std::string& id, bool main_on_attach, bool owner_bound) override;
  Result<std::unique_ptr<ShimClient>> connect(const std::string& id, bool resume_paused) override;
  Result<SandboxInfo> find(std::string_view id_or_name) override;
  Result<std::string> resolve(std::string_view id_or_name) override;
  Result<std::vector<SandboxInfo>> list() override;
  Status stop(const std::string& id, int signal, std::chrono::milliseconds grace) override;
  Status pause(const std::string& id) override;
  Result<Timings> resume(const std::string& id, bool cold) override;
  Result<std::vector<SandboxInfo>> fork(const std::string& id, std::uint32_t count,
                                        const std::vector<std::string>& names,
                                        const ForkOptions& options) override;
  Status remove(const std::string& id, bool force) override;
  Status set_network(const std::string& id, const NetworkOptions& options) override;
  Result<NetworkInfo> create_private_network(const std::string& name) override;
  Status remove_private_network(const std::string& id_or_name, bool force) override;
  Result<std::vector<NetworkInfo>> private_networks() override;
  Status connect_network(const std::string& network, const std::string& id,
                         const std::vector<std::string>& aliases) override;
  Status disconnect_network(const std::string& network, const std::string& id) override;
  Status rename(const std::string& id, const std::string& name) override;
  Result<SandboxInfo> wait(const std::string& id) override;
  Result<Timings> warm(const std::string& image, std::uint64_t memory_mib, double cpus) override;
  Result<PruneReport> prune_storage(std::chrono::seconds unused_for, Prune what) override;
  Result<DoctorReport> doctor() override;
  Result<UniqueFd> open_directory(const std::string& id) override { return home_.open_sandbox(id); }

  /// For the pool: gives the sandbox of `record` the name in `options` and makes `record` what it shall be
  /// once claimed.
  Status prepare_claim(SandboxRecord& record, const SandboxOptions& options);
  void forget_name(const std::string& name, const std::string& id) const;

 private:
  /// A sandbox whose lock this process holds, about to be started.
  struct Held {
    std::string id;
    UniqueFd dir, lock;
    SandboxRecord record;
    std::vector<net::PeerNetwork> networks;  ///< Private ones, as its shim is told.
  };
  struct StartMode {
    LaunchMode mode = LaunchMode::kBoot;
    bool main_on_attach = false;
    bool owner_bound = false;
  };

  // engine.cpp
  void note(std::string_view text) const;
  /// Says so when a sandbox gets more memory than was asked for.
  void note_memory_step(std::uint64_t wanted_mib) const;
  void progress(std::string_view stage, std::uint64_t done = 0, std::uint64_t total = 0) const;
  Result<const Host*> host();
  Result<const GuestAssets*> assets();
  Result<BaseContext> base_context();
  /// Mends `id` and tells the user what was mended.
  Result<SandboxInfo> look_at(const std::string& id);
  /// Waits for the ends of shims that this process started, without blocking.
  void reap_children();

  // prune.cpp
  /// Removes what sandboxes that ended by themselves left in the indexes, at about every thirtieth call.
  void tidy_now_and_then();

  // create.cpp
  Result<Image> resolve_image(const SandboxOptions& options);
  /// Takes record.name, or invents one. The caller holds the home's lock.
  Status name_sandbox(SandboxRecord& record) const;
  /// Gives the sandbox in `scratch` its name and its place; the lock stays with the scratch.
  Status publish(Home::Scratch& scratch, SandboxRecord& record);
  /// The same for a member of private networks.
  Status publish_in(const std::vector<std::string>& names, Home::Scratch& scratch, SandboxRecord& record);

  // start.cpp
  /// Takes the lock of a sandbox that is not running, waiting for a shim that is about to end. kInvalidState
  /// when it runs.
  Result<Held> hold(const std::string& id);
  Status require_fitting_memory(const SandboxRecord& record);
  Status prepare_from_base(Held& held, StageClock& clock);
  [[nodiscard]] ShimSpec spec_for(const Held& held, const StartMode& mode, const Host& host) const;
  /// Admits, queues, starts the shim and waits for its word.
  Status launch(Held& held, const StartMode& mode, StageClock& clock);
  Result<BaseManifest> base_for(const SandboxRecord& record, const std::string& image_disk);

  // set_network.cpp
  [[nodiscard]] Result<NetworkRecord> checked_network(const NetworkOptions& options) const;
  [[nodiscard]] Status require_net_program() const;
  [[nodiscard]] NetSpec net_spec_for(const NetworkRecord& network,
                                     std::vector<net::PeerNetwork> networks) const;

  // network_members.cpp; those that tell members want the networks' lock
  /// All networks of `id`, if it runs.
  Status tell_networks(const std::string& id);
  /// Whoever has not heard of a change; `last` behind the others. Each is tried, and who could not be told
  /// stays in the record.
  Status tell_untold(PrivateNetwork& network, const std::string& last);
  /// The networks' lock; changes whose makers were killed have been told.
  Result<UniqueFd> take_networks();
  Result<std::vector<PrivateNetwork>> wanted_networks(const std::vector<std::string>& names);
  Result<std::vector<PrivateNetwork>> all_networks_with(const std::string& id) const;
  /// Children are members of all networks of their parent. Takes the lock.
  Status join_forked(const std::string& parent, const std::vector<std::string>& children);
  /// Members of these networks learn what has become of one: it has another name, or is no more. Takes the
  /// lock.
  void tell_neighbours(const Result<std::vector<PrivateNetwork>>& concerned);
  /// It runs now: members may have changed since its shim was told `known`. Takes the lock.
  void tell_after_start(const std::string& id, const std::vector<net::PeerNetwork>& known);

  // lifecycle.cpp
  Result<std::unique_ptr<ShimClient>> connect_running(const std::string& id);
  Status call(const std::string& id, ShimRequest kind, std::string_view body,
              std::chrono::milliseconds limit);
  Status end_paused(const std::string& id, bool& ended);
  /// Ends the shim of `id`, whatever it does, and returns with the sandbox's lock.
  Result<UniqueFd> seize(const std::string& id, int dir);

  // fork.cpp
  class ForkSource;
  class ForkChildren;
  struct ForkPlan;
  Result<std::vector<SandboxInfo>> fork_once(ForkPlan& plan, StageClock& clock);

  EngineOptions options_;
  Home home_;
  Installation installation_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ImageStore> images_;
  std::optional<Host> host_;
  std::optional<GuestAssets> assets_;
  Timings timings_;
  std::map<std::string, UniqueFd> owned_;  ///< Locks of created sandboxes that end with this process.
  std::vector<ChildProcess> children_;
};

}  // namespace drupe
