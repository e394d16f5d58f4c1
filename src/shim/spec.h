// What the engine tells a new shim. It arrives on descriptor 3 (kSpecFd) as encode()d bytes; with it come the
// sandbox's directory, its locked lock file and the status pipe, at fixed numbers. Everything else is opened
// in that directory before the shim locks itself down.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "hypervisor/hypervisor.h"
#include "protocol/net_peers.h"
#include "shim/timings.h"

namespace drupe {

inline constexpr int kSpecFd = 3;
inline constexpr int kDirFd = 4;
inline constexpr int kLockFd =
    5;  ///< The engine holds flock(LOCK_EX) on this open file; inheriting it inherits the lock.
/// Links that the engine puts into every directory a shim starts in, beside the record's disk chain and
/// memory files.
inline constexpr const char* kKernelFile = "vmlinux";
inline constexpr const char* kInitramfsFile = "initramfs.cpio";
/// What kMakeBase leaves in its directory; record.saved then holds the epoch (device_state_file =
/// kBaseStateFile).
inline constexpr const char* kBaseRamFile = "ram";
inline constexpr const char* kBaseStateFile = "state";
inline constexpr const char* kBaseDiskFile = "disk.qcow2";
inline constexpr int kStatusFd = 6;  ///< The shim writes one ShimStatus and closes it.
/// With ShimSpec::awaits_fork: a pipe with the two bytes below, in this order. Its end before them ends the
/// shim.
inline constexpr int kForkFd = 7;
/// Everything of the save is in the directory, which is where it belongs, and so is the final record.
inline constexpr char kForkSaved = 's';
inline constexpr char kForkMayRun = 'r';  ///< The parent is out of the way; until here no user work runs.

enum class LaunchMode : std::uint8_t {
  kBoot,  ///< Cold boot of the disk. When record.saved is there, it is dropped once the sandbox runs.
  /// From the linked base snapshot: fresh identity. The engine has linked everything before:
  /// record.base_ram_file, record.saved (device state and epoch of the base, no delta) and record.disk_chain:
  /// the image, the base's node, both immutable, and the name of a new node that the shim makes.
  kFromBase,
  kResume,     ///< From record.saved: same identity. The shim puts a new writable node on the chain.
  kForkChild,  ///< From record.saved: fresh identity. The chain's last name is a new node that the shim
               ///< makes.
  /// Cold boot on record.disk_chain (the image alone) with kBaseDiskFile as new writable node, exercise, save
  /// kBaseRamFile and kBaseStateFile into the directory, write the record (state paused, saved), end.
  kMakeBase,
};

/// What the sandbox's network process is told beside the record: what the host is like now.
struct NetSpec {
  std::vector<std::string> resolvers;      ///< The host's, numeric, optionally with a port.
  bool follow_resolvers = false;           ///< They are those of its resolv.conf(5), and change with it.
  std::vector<std::string> search;         ///< Search domains of the host.
  bool ipv6 = false;                       ///< The host reaches global IPv6 addresses.
  std::string policy;                      ///< Encoded; nothing here reads it.
  std::vector<net::PeerNetwork> networks;  ///< Private ones that it is in.
  void append_to(ByteWriter& writer) const;
  static NetSpec read(ByteReader& reader);
};

struct ShimSpec {
  std::uint32_t version = 4;
  LaunchMode mode = LaunchMode::kBoot;
  bool start_main_on_attach =
      false;  ///< Main starts when the first client attaches to it; without an owner after ten seconds.
  bool owner_bound =
      false;  ///< Ends the sandbox when `owner_pid` ends or the first client's connection closes.
  int owner_pid = 0;
  /// kForkChild only: the parent is not saved yet. The directory has what its machine is made from today, and
  /// a record that says so; what comes over kForkFd says when the rest is there.
  bool awaits_fork = false;
  std::uint32_t start_deadline_ms = 60'000;  ///< From the start, or from kForkSaved.
  std::uint32_t restore_retries = 1;
  Accelerator accelerator = Accelerator::kTcg;
  std::uint64_t tsc_khz = 0;
  std::string qemu_path;
  std::string preload_path;     ///< libdrupe-ram.so
  std::string record_dir_path;  ///< For messages only.
  std::string net_path;         ///< drupe-net; needed only for a sandbox with a network.
  NetSpec net;
  std::string trust;  ///< Encoded TrustBundle for the guest; empty: none. Nothing here reads it.
  std::vector<std::string> exercise;  ///< kMakeBase: shell lines to run (each by /bin/sh -c; failures
                                      ///< ignored) so that hot code is loaded.
  [[nodiscard]] std::string encode() const;
  static Result<ShimSpec> decode(std::string_view bytes);
};

struct ShimStatus {
  std::optional<Error> error;  ///< Absent: the sandbox runs (kMakeBase: is saved).
  /// Milliseconds since the shim's start at which each stage was done: "hypervisor", "state", "agent",
  /// "setup".
  StageTimings timings;
  std::vector<std::string> notes;  ///< Sentences for the user about a start that has succeeded.
  [[nodiscard]] std::string encode() const;
  static Result<ShimStatus> decode(std::string_view bytes);
};

}  // namespace drupe
