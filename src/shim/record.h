// The record of one sandbox: what survives every process. One JSON file in the sandbox's directory, replaced
// atomically by whoever holds the sandbox's lock (the shim while it lives, else the engine for a moment).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "hypervisor/hypervisor.h"
#include "protocol/messages.h"
#include "protocol/net_control.h"

namespace drupe {

inline constexpr const char* kRecordFile = "record.json";
inline constexpr const char* kLockFile = "lock";
inline constexpr const char* kSocketFile = "shim.sock";
inline constexpr int kRecordVersion = 1;

enum class SandboxState : std::uint8_t {
  kCreated,  ///< Has a disk, has never run.
  kRunning,  ///< A shim holds the lock. Seen without a lock holder it means: the machine was lost.
  kPaused,   ///< Memory and device state are in files; no process.
  kExited,   ///< Ended; `cause` says how. `start` boots the same disk.
};
[[nodiscard]] std::string_view to_string(SandboxState state);

enum class EndCause : std::uint8_t {
  kNone,
  kFinished,    ///< The main command ended.
  kStopped,     ///< Asked to stop.
  kVmLost,      ///< Shim or hypervisor was killed or crashed: memory is gone, disk and record are not.
  kHostOom,     ///< The host's kernel killed the hypervisor for memory.
  kGuestEnded,  ///< The guest shut down, reset or panicked.
  kLifetime,    ///< Its maximum lifetime passed.
  kOwnerGone,   ///< Its creator ended and it was not detached.
  kStartFailed,
};
[[nodiscard]] std::string_view to_string(EndCause cause);

/// Files of saved memory in the sandbox's directory, all immutable. While a paused record has them, every
/// node of its disk chain is immutable too: a resume puts a new writable node on top, so that a resume that
/// fails changes nothing.
struct SavedState {
  std::string delta_file;    ///< Own pages; empty: none (memory equals the base snapshot's).
  std::string extents_file;  ///< Encoded MemoryExtents of delta_file.
  std::string device_state_file;
  std::uint64_t epoch = 0;  ///< Of the agent at the save.
  bool durable = false;     ///< fsynced: survives a power cut.
  std::string flows_file;   ///< Open connections, for the network process to reset; empty: none.
  bool link_up = false;     ///< Of the network card.
};

enum class NetworkMode : std::uint8_t {
  kNone,    ///< The card's link is down.
  kOpen,    ///< Everything but what is closed or denied.
  kPolicy,  ///< Only what is allowed.
};
/// "none", "open", "policy".
[[nodiscard]] std::string_view to_string(NetworkMode mode);

/// What the sandbox may reach, as it was asked for. Rules are words of the network policy, which nothing here
/// reads.
struct NetworkRecord {
  struct Rule {
    std::string text;
    std::string origin;  ///< Preset that it came from; may be empty.
    bool operator==(const Rule&) const = default;
  };
  NetworkMode mode = NetworkMode::kNone;
  std::vector<Rule> allow, deny;
  std::vector<std::string> allow_private;
  std::vector<net::Publication> publications;
  std::uint64_t quota_bytes = 0;  ///< Both ways together; 0: none.
  std::uint64_t used_bytes = 0;   ///< In earlier lives of the network process, as far as it is known.
  bool operator==(const NetworkRecord&) const = default;
};
/// JSON, as within a record.
[[nodiscard]] std::string encode_network(const NetworkRecord& network);
Result<NetworkRecord> decode_network(std::string_view json);

struct SandboxRecord {
  int version = kRecordVersion;
  std::string id;    ///< random_id()
  std::string name;  ///< Unique in the home; generated when not given.
  std::map<std::string, std::string> labels;
  std::string image_id, image_name;
  MachineShape shape;
  std::uint64_t disk_bytes = 0;
  double cpus = 1;  ///< As asked; shape.vcpus is it rounded up.

  SandboxState state = SandboxState::kCreated;
  EndCause cause = EndCause::kNone;
  std::string cause_text;  ///< A sentence, e.g. the console's last lines.
  std::optional<ExitFacts> main_exit;
  std::int64_t created_ns = 0, started_ns = 0, finished_ns = 0, paused_ns = 0;  ///< CLOCK_REALTIME; 0: never.

  // How its user work runs.
  std::vector<std::string> image_env;
  std::string image_user, image_cwd, hostname, machine_id, stop_signal;
  std::optional<ExecOptions>
      main;  ///< Absent: idles. Secrets of `env` are the reason that the record is 0600.

  bool main_started = false;  ///< In this life of the guest, pauses included.

  // How it lives.
  bool detached = false;
  bool auto_remove = false;
  std::uint64_t idle_timeout_ms = 0, max_lifetime_ms = 0;  ///< 0: none.
  std::string parent_id;                                   ///< Fork: the sandbox it came from.

  // Its files, names relative to its directory. Bottom first; the first is the raw image, the last the
  // writable node (while paused: immutable as all others).
  std::vector<std::string> disk_chain;
  std::string base_key;       ///< Key of the base snapshot it descends from; empty: cold boot.
  std::string base_ram_file;  ///< Link of the base's RAM; empty: none (cold boot: zero memory).
  std::string state_key;      ///< HypervisorInfo::state_key at start; saved memory fits only there.
  std::uint64_t tsc_khz = 0;
  /// Present while kPaused, and until the first start of a fork child or of a sandbox made from a base
  /// snapshot (then only device_state_file, a link of the base's, and epoch).
  std::optional<SavedState> saved;
  std::uint64_t next_file = 1;  ///< Number for the next disk or memory file.

  // What was honestly achieved.
  std::string isolation;    ///< "hardware-virtualized" | "emulated"
  std::string confinement;  ///< "full" | "partial" | "weak"
  std::vector<std::string> confinement_missing;
  NetworkRecord network;
  bool self_control = false;  ///< The guest may ask for its own pause and removal.
  bool host_ca = false;       ///< The guest trusts the certificate authorities of the host.
};

/// Whether its command has ended and it removes itself: gone for everyone but whoever cleans up.
[[nodiscard]] inline bool is_going(const SandboxRecord& record) {
  return record.auto_remove && record.state == SandboxState::kExited;
}

/// A record file is at most this long (1 MiB of arguments and as much environment, escaped).
inline constexpr std::size_t kMaxRecordSize = 32 * 1024 * 1024;

/// Bytes that are not UTF-8 are written as {"hex": "..."} in place of a string.
[[nodiscard]] std::string encode_record(const SandboxRecord& record);
/// Bounded and strict: a record is host data, but a torn or foreign file must give a sentence, not a crash.
Result<SandboxRecord> decode_record(std::string_view json);
Result<SandboxRecord> read_record(int sandbox_dir);
Status write_record(int sandbox_dir, const SandboxRecord& record, Sync sync = Sync::kNo);

/// Encoded MemoryExtents: u64 count, then ram_offset, file_offset, length of each.
inline constexpr std::size_t kMaxExtents = 65536;
[[nodiscard]] std::string encode_extents(const std::vector<MemoryExtent>& extents);
/// Checks order, alignment and overlap too.
Result<std::vector<MemoryExtent>> decode_extents(std::string_view bytes, std::uint64_t ram_bytes);

}  // namespace drupe
