// The sandboxes of the API: rows of the store over machines of the engine.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/service/engines.h"
#include "api/service/metrics.h"
#include "api/service/quota.h"
#include "api/service/rootfs.h"
#include "api/store/store.h"
#include "base/event_loop.h"
#include "base/result.h"
#include "engine/pool.h"

namespace drupe::api {

struct SandboxSettings {
  std::string home;
  std::string region = "local";
  std::string default_rootfs = "devbox:1";
  bool accept_emulation = false;
  std::vector<std::string> open_ranges;  ///< Closed address ranges that egress rules may name.
  std::int64_t most_disk_mib = std::int64_t{1} << 20;
  std::string preview_domain = "sb.localhost";
  std::string preview_template;          ///< "http://<id>-<port>.sb.localhost:7070", with these words in it.
  std::chrono::seconds retention{90};    ///< How long an ended sandbox can still be seen.
  Usage quota;                           ///< Of users who have none of their own; 0: no bound.
  std::chrono::seconds paused_ttl{0};    ///< A sandbox that was paused for so long is destroyed; 0: never.
  std::chrono::seconds max_lifetime{0};  ///< Since it was created; 0: none.
  std::int64_t least_auto_pause_s = 60;
};

enum class State : std::uint8_t {
  kCreating,
  kRunning,
  kPausing,
  kPaused,
  kResuming,
  kForking,
  kError,
  kDestroying,
  kDestroyed,
  kFailed,
};
[[nodiscard]] std::string_view to_string(State state);
[[nodiscard]] std::optional<State> state_from(std::string_view word);

/// A sandbox as a client sees it.
struct SandboxView {
  SandboxRow row;
  State state = State::kCreating;
  std::string ip;  ///< Empty: none yet.
  std::optional<std::int64_t> paused_ns;
};

struct CreateRequest {
  std::string shape;
  std::optional<std::string> rootfs, name;
  std::int64_t disk_mib = 0;  ///< 0: the shape's.
  std::optional<std::vector<std::string>> egress;
  std::map<std::string, std::string> envs;
  std::vector<std::string> ssh_pubkeys;
  bool ingress = false;
  std::optional<std::int64_t> auto_pause_s;
  std::vector<NetworkRow> networks;  ///< To be in from the start; the caller's own.
};

struct ForkRequest {
  bool start_paused = false;
  std::optional<std::vector<std::string>> egress, ssh_pubkeys;
  std::optional<std::map<std::string, std::string>> envs;
  std::optional<bool> ingress;
};

struct ForksRequest {
  std::uint32_t count = 1;  ///< 1..64
  ForkRequest each;
};

struct PatchRequest {
  std::optional<bool> ingress;
  std::optional<std::int64_t> auto_pause_s;
  bool disable_auto_pause = false;
};

/// Two words with '-' between.
[[nodiscard]] std::string made_up_name();

/// Payload over its network.
struct Traffic {
  std::uint64_t used_bytes = 0;  ///< Both ways, since it was made.
  std::uint64_t in_bytes = 0;    ///< To it, since it runs.
};

/// Callable from any thread; operations block. Ids that are not the caller's are kNotFound. Operations that
/// change the life of one sandbox exclude each other: the second is kInvalidState at once.
class Sandboxes {
 public:
  Sandboxes(SandboxSettings settings, Store& store, QuotaStore& quotas, Engines& engines,
            RootfsCatalogue& rootfs, Metrics& metrics)
      : settings_(std::move(settings)),
        store_(store),
        quotas_(quotas),
        engines_(engines),
        rootfs_(rootfs),
        metrics_(metrics) {}

  /// Brings the store in line with the machines that are there, after whatever happened to the last process.
  Status reconcile();

  Result<SandboxView> create(const std::string& owner, const CreateRequest& request);
  Result<SandboxView> find(const std::string& owner, const std::string& id);
  /// Newest first; those that ended a while ago are no longer there.
  Result<std::vector<SandboxView>> list(const std::string& owner);
  Result<SandboxView> patch(const std::string& owner, const std::string& id, const PatchRequest& request);
  Result<SandboxView> destroy(const std::string& owner, const std::string& id);
  /// Destroys what has outlived its time by the settings. Gives how long to wait before the next call.
  Result<std::chrono::milliseconds> end_overdue();
  Result<SandboxView> pause(const std::string& owner, const std::string& id);
  Result<SandboxView> resume(const std::string& owner, const std::string& id);
  Result<SandboxView> fork(const std::string& owner, const std::string& id, const ForkRequest& request);
  /// Ours: several children at once, also of a sandbox that runs and goes on. All of them, or none.
  Result<std::vector<SandboxView>> forks(const std::string& owner, const std::string& id,
                                         const ForksRequest& request);
  Result<SandboxView> set_egress(const std::string& owner, const std::string& id,
                                 const std::optional<std::vector<std::string>>& egress);
  Result<SandboxView> add_ssh_pubkeys(const std::string& owner, const std::string& id,
                                      const std::vector<std::string>& keys);

  /// Of one that runs; it may only grow.
  Result<SandboxView> grow_disk(const std::string& owner, const std::string& id, std::int64_t disk_mib);
  Result<Traffic> traffic(const std::string& owner, const std::string& id);

  /// A running sandbox and a connection to it.
  struct Access {
    Engines::Lease engine;
    SandboxRow row;
    std::unique_ptr<ShimClient> client;  ///< On the engine's loop; gone before the engine is.

    Access(Engines::Lease lease, SandboxRow found, std::unique_ptr<ShimClient> connected)
        : engine(std::move(lease)), row(std::move(found)), client(std::move(connected)) {}
  };
  /// kInvalidState, with the state and what was `to_do` ("accessing files") in words, when it is not running.
  Result<Access> access(const std::string& owner, const std::string& id, std::string_view to_do);

  /// The same without a connection: its directory in the home.
  struct Place {
    SandboxRow row;
    UniqueFd directory;
  };
  Result<Place> place(const std::string& owner, const std::string& id, std::string_view to_do);

  /// Called with the id of each sandbox that has ended for good, in the thread that ended it. Set before any
  /// other call.
  void on_gone(std::function<void(const std::string& id)> callback) { on_gone_ = std::move(callback); }

  /// The same for whoever knows its address: only while its ingress is on.
  Result<Access> ingress(const std::string& id);
  /// Creates of this image and shape are claimed from the pool, which outlives this. Before any other call.
  void set_pool(Pool& pool, std::string image, std::string shape) {
    pool_ = &pool;
    pool_image_ = std::move(image);
    pool_shape_ = std::move(shape);
  }
  struct PoolView {
    std::string image, shape;
    PoolStatus status;
  };
  [[nodiscard]] std::optional<PoolView> pool() const;
  /// Before any other call.
  void set_preview_template(std::string text) { settings_.preview_template = std::move(text); }

  /// "hardware-virtualized" or "emulated".
  Result<std::string> isolation();
  /// kPermission when it is emulated and the operator has not accepted that.
  Status check_isolation();
  [[nodiscard]] const SandboxSettings& settings() const { return settings_; }

 private:
  /// One operation on a sandbox's life, from its begin to its destruction.
  class Operation;
  friend class Operation;

  Result<SandboxRow> own_row(const std::string& owner, const std::string& id);
  Result<SandboxView> look(SandboxRow row, Engine& engine);
  Result<SandboxView> look(SandboxRow row);
  /// What it is beneath the operation that the caller has on it.
  Result<SandboxView> look_beneath(SandboxRow row, Engine& engine);
  Status require(const SandboxView& view, State state, std::string_view to_do);
  Result<Operation> begin(const std::string& id, State shown);
  Result<Operation> begin_when_idle(const std::string& id, State shown, Deadline deadline);
  Result<SandboxView> start_new(SandboxRow row, const CreateRequest& request, const NetworkOptions& network,
                                const Image& image);
  /// A sandbox that runs already; nothing when the pool has none for this.
  Result<std::optional<SandboxInfo>> claim(Engine& engine, const SandboxOptions& options,
                                           const SandboxRow& row);
  Result<SandboxRow> new_row(const std::string& owner, const CreateRequest& request);
  Status reconcile_row(SandboxRow row, Engine& engine);
  Status set_idle_timeout(Engine& engine, const SandboxRow& row);
  /// In the guest; what does not succeed is told in the log.
  void give_keys(Engine& engine, const SandboxRow& row, const std::vector<std::string>& in_place_of);

  // sandboxes_fork.cpp
  Result<std::vector<SandboxView>> fork_into(const SandboxRow& parent, const ForksRequest& request,
                                             bool only_paused);
  Status mark_ended(SandboxRow& row, Phase phase);
  using Condition = std::function<bool(const SandboxView&)>;
  /// Destroys it when `wanted` holds once nothing else is done with it; else its view as it is.
  Result<SandboxView> end_if(const std::string& owner, const std::string& id, const Condition& wanted);

  // sandboxes_bounds.cpp
  /// kPermission when the owner's quota does not have so much more.
  Status check_room(const std::string& owner, const Usage& more, Engine& engine);
  /// Adds the row of a new sandbox when there is room for it; `made_up`: its name, too.
  Status add_row(SandboxRow& row, bool made_up, Engine& engine);
  /// When its time is over.
  [[nodiscard]] std::optional<std::int64_t> due_ns(const SandboxView& view) const;

  SandboxSettings settings_;
  std::function<void(const std::string&)> on_gone_;
  Store& store_;
  QuotaStore& quotas_;
  Engines& engines_;
  RootfsCatalogue& rootfs_;
  Metrics& metrics_;
  Pool* pool_ = nullptr;
  std::string pool_image_, pool_shape_;

  std::mutex quota_mutex_;  ///< Held from counting to what is counted; before mutex_.
  std::map<std::string, std::int64_t> growing_mib_;  ///< Under quota_mutex_: by owner, not yet in a row.
  std::mutex mutex_;
  std::condition_variable idle_;
  std::map<std::string, State> operations_;  ///< Under mutex_: id, what its operation is shown as.
  std::optional<std::string> isolation_;     ///< Under mutex_.
};

}  // namespace drupe::api
