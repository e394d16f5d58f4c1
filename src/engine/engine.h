// The engine: sandboxes, base snapshots, images, in the calling process, without a daemon. Any number of
// processes may open one home. An Engine is used by one thread at a time; long operations block.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/result.h"
#include "engine/prune.h"
#include "shim/client.h"
#include "shim/record.h"

namespace drupe {

class ImageStore;
struct DoctorReport;  // engine/doctor.h

/// What a sandbox may reach. Rules: host, host:port, *.host, ip, ip:port, cidr, cidr:port, [v6], *; presets
/// @pip, @npm, @apt.
struct NetworkOptions {
  NetworkMode mode = NetworkMode::kNone;
  std::vector<std::string> allow;          ///< Only with kPolicy.
  std::vector<std::string> deny;           ///< Wins over every allow rule.
  std::vector<std::string> allow_private;  ///< Closed ranges to open; a rule is needed all the same.
  std::vector<std::string> publish;        ///< "[address:]hostport:guestport", TCP; loopback by default.
  std::uint64_t quota_bytes = 0;           ///< Both ways together; 0: none.
};

struct EngineOptions {
  std::string home;        ///< Empty: $DRUPE_HOME, else $XDG_DATA_HOME/drupe, else ~/.local/share/drupe.
  std::string binary_dir;  ///< Where drupe-shim and libdrupe-ram.so are; empty: that of the running program.
  std::string guest_dir;   ///< Kernel and initramfs; empty: $DRUPE_GUEST_DIR, else <binary_dir>/../guest.
  /// What no sandbox of this engine reaches, whatever its own rules; presets and ports do not belong here.
  std::optional<NetworkOptions> network_ceiling;
  /// What long operations say: a stage ("Pulling", "Booting the image once"), done and total (0: unknown).
  std::function<void(std::string_view stage, std::uint64_t done, std::uint64_t total)> on_progress;
  /// Set to true (by a signal handler, say) to stop a pull with kCancelled. May be null.
  const std::atomic<bool>* cancel = nullptr;
  /// Sentences for the user about things that were mended or noticed.
  std::function<void(std::string_view note)> on_note;
};

enum class PullPolicy : std::uint8_t { kMissing, kAlways, kNever };

struct SandboxOptions {
  std::string image;  ///< Reference, name or id.
  std::string name;   ///< Empty: generated. [A-Za-z0-9][A-Za-z0-9_.-]{0,127}
  std::map<std::string, std::string> labels;
  std::vector<std::string> command;  ///< Empty: the image's Cmd (unless idle).
  std::optional<std::vector<std::string>> entrypoint;
  bool idle = false;             ///< No main command: `create`, library use.
  std::vector<std::string> env;  ///< "KEY=value"
  std::string cwd, user, hostname;
  double cpus = 1;                 ///< 0.01..32
  std::uint64_t memory_mib = 512;  ///< Rounded up to 256; 256..65536
  std::uint64_t disk_bytes = 0;    ///< 0: 8 GiB. Smaller than the image's disk is refused.
  bool tty = false, stdin_open = false;
  std::uint16_t rows = 24, columns = 80;
  std::uint64_t timeout_ms = 0;  ///< Of the main command.
  std::uint64_t idle_timeout_ms = 0, max_lifetime_ms = 0;
  NetworkOptions network;
  /// The guest also trusts the certificate authorities that this host's clients trust (engine/host_trust.h).
  bool host_ca = false;
  /// Its work may ask for its own pause and removal (docs/guest.md, "Self control").
  bool self_control = false;
  std::vector<std::string> networks;  ///< Private ones to be in, by name or id.
  bool detached = false, auto_remove = false;
  bool require_hardware = false;
  PullPolicy pull = PullPolicy::kMissing;
  bool insecure_registry = false;
};

/// What a fork's children do not take over from their parent; in force before they run.
struct ForkOptions {
  std::optional<NetworkOptions> network;  ///< Instead of the parent's; `publish` is refused.
  std::optional<std::uint64_t> idle_timeout_ms;
};

struct Timings {
  std::vector<std::pair<std::string, double>> stages;  ///< Name, milliseconds it took.
};

struct SandboxInfo {
  SandboxRecord record;
  bool alive = false;  ///< Its shim holds the lock.
};

/// A private network: its members reach each other, and nobody else reaches them by it.
struct NetworkInfo {
  struct Member {
    std::string sandbox;  ///< Id.
    std::string name, address;
    SandboxState state = SandboxState::kCreated;
  };
  std::string id, name;
  std::string subnet;           ///< "198.18.0.0/24"
  std::int64_t created_ns = 0;  ///< CLOCK_REALTIME
  std::vector<Member> members;
};

class Engine {
 public:
  virtual ~Engine() = default;
  static Result<std::unique_ptr<Engine>> open(EngineOptions options);

  /// Opened at the first use; lives as long as the engine.
  virtual Result<ImageStore*> images() = 0;
  [[nodiscard]] virtual const std::string& home() const = 0;
  virtual EventLoop& loop() = 0;

  /// Stages of the last create(), start(), resume(), fork() or warm().
  [[nodiscard]] virtual const Timings& timings() const = 0;

  /// Resolves (and pulls) the image, makes the directory and record. Does not start. A sandbox that is
  /// neither detached nor kept (auto_remove) belongs to this process until start(): it goes when the process
  /// ends before.
  virtual Result<SandboxInfo> create(const SandboxOptions& options) = 0;
  /// Starts a created, exited sandbox (created: from the base snapshot, made now if missing; exited: cold
  /// boot of its disk). `main_on_attach`: the main command waits for attach(). `owner_bound`: ends with this
  /// process.
  virtual Result<Timings> start(const std::string& id, bool main_on_attach, bool owner_bound) = 0;
  /// Connection to a running sandbox; kInvalidState when it is not running. `resume_paused`: resumes first.
  virtual Result<std::unique_ptr<ShimClient>> connect(const std::string& id, bool resume_paused) = 0;

  /// By id, name or unique prefix. Mends first what a killed process left behind (and says so through
  /// on_note).
  virtual Result<SandboxInfo> find(std::string_view id_or_name) = 0;
  /// The id alone, without reading the record: also that of a sandbox whose record is damaged, so that it can
  /// be removed.
  virtual Result<std::string> resolve(std::string_view id_or_name) = 0;
  virtual Result<std::vector<SandboxInfo>> list() = 0;
  virtual Status stop(const std::string& id, int signal, std::chrono::milliseconds grace) = 0;
  virtual Status pause(const std::string& id) = 0;
  /// kMemoryIncompatible: the saved memory does not fit this machine; the disk does (start with `cold`).
  virtual Result<Timings> resume(const std::string& id, bool cold) = 0;
  virtual Result<std::vector<SandboxInfo>> fork(const std::string& id, std::uint32_t count,
                                                const std::vector<std::string>& names,
                                                const ForkOptions& options = {}) = 0;
  virtual Status remove(const std::string& id, bool force) = 0;
  /// Replaces what the sandbox may reach, and keeps its published ports; in force, also for open connections,
  /// when it returns.
  virtual Status set_network(const std::string& id, const NetworkOptions& options) = 0;
  /// kAlreadyExists for a name that is taken.
  virtual Result<NetworkInfo> create_private_network(const std::string& name) = 0;
  /// kInvalidState while there are members; `force` takes them out of it first.
  virtual Status remove_private_network(const std::string& id_or_name, bool force) = 0;
  /// By name.
  virtual Result<std::vector<NetworkInfo>> private_networks() = 0;
  /// Makes the sandbox a member, or takes it out; it may run or not. In force for all members when it
  /// returns, also for open connections. A sandbox that is a member stays one, with these other names in
  /// place of those that it had; kNotFound for one that is none. `aliases`: at most two host names of up to
  /// 127 bytes, below drupe.internal and fc.local.
  virtual Status connect_network(const std::string& network, const std::string& id,
                                 const std::vector<std::string>& aliases) = 0;
  virtual Status disconnect_network(const std::string& network, const std::string& id) = 0;
  virtual Status rename(const std::string& id, const std::string& name) = 0;
  /// Blocks until the sandbox has ended.
  virtual Result<SandboxInfo> wait(const std::string& id) = 0;
  /// Makes the base snapshot of an image and shape now.
  virtual Result<Timings> warm(const std::string& image, std::uint64_t memory_mib, double cpus) = 0;
  /// Removes base snapshots unused for `unused_for` (0: all that are not needed by a start in progress),
  /// kernels of removed bases, and what killed processes left behind. Safe at any time: sandboxes hold links
  /// of their own. kOnlyCount counts base snapshots and kernels, and changes nothing.
  virtual Result<PruneReport> prune_storage(std::chrono::seconds unused_for, Prune what) = 0;
  /// What this machine can do, in words; runs the functional probe again.
  virtual Result<DoctorReport> doctor() = 0;
  /// Directory of a sandbox, for read_log().
  virtual Result<UniqueFd> open_directory(const std::string& id) = 0;
};

}  // namespace drupe
