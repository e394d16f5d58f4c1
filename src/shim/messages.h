// Requests that the shim itself answers, on the same frames as the guest protocol.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "protocol/messages.h"
#include "shim/record.h"
#include "shim/spec.h"
#include "shim/timings.h"

namespace drupe {

enum class ShimRequest : std::uint16_t {
  kInfo = 0x100,  ///< -> record JSON and host-side usage: ShimInfo.
  kPause =
      0x101,  ///< -> empty, when the record says paused; the shim ends after it has made the files durable.
  kSnapshot = 0x102,   ///< SnapshotRequest -> SnapshotReply: saves into the sandbox's directory for a fork,
                       ///< then goes on.
  kStop = 0x103,       ///< StopRequest -> empty, when the record says exited.
  kWait = 0x104,       ///< -> WaitReply, when the sandbox has ended (or was paused: kInvalidState).
  kUpdate = 0x105,     ///< UpdateRequest: name, labels, timers.
  kClaim = 0x106,      ///< ClaimRequest: a pooled sandbox gets its owner, name, identity and environment.
  kStartMain = 0x107,  ///< Starts the main command of the record when it waits.
  kGrowDisk = 0x108,   ///< u64 bytes.
  /// text: name of a file in the sandbox's directory with an encoded NetSetRequest, which is removed.
  /// -> empty, when it is in force and recorded.
  kNetSet = 0x109,
  kNetLog = 0x10a,       ///< net::ReadLog -> net::LogPage, by the network process.
  kNetCounters = 0x10b,  ///< -> net::NetCounters, by the network process.
  /// text: name of a file as of kNetSet, with an encoded NetworksRequest. -> empty, when connections within
  /// networks that the sandbox is no more in, or with members that are none any more, have ended.
  kNetworks = 0x10c,
  kSnapshotStage = 0x10d,  ///< SnapshotStageRequest -> as its stage says, or why the snapshot has failed.
};

/// On a client's connection kReset carries an encoded error in both directions, so that its receiver knows
/// what kind it was.
[[nodiscard]] std::string encode_reset(const Error& error);
[[nodiscard]] Error decode_reset(ByteView payload);

struct SnapshotRequest {
  std::uint32_t deadline_ms = 30'000;
  std::uint64_t ticket = 0;  ///< Made up by who asks, to name it in kSnapshotStage; 0: none.
  [[nodiscard]] std::string encode() const;
  static Result<SnapshotRequest> decode(ByteView bytes);
};
struct SnapshotReply {
  SavedState saved;                     ///< File names in the sandbox's directory.
  std::vector<std::string> disk_chain;  ///< The now immutable nodes a child builds on, bottom first.
  double stopped_ms = 0;                ///< How long the guest's work stood still after it was frozen.
  /// Milliseconds since the request's turn at which each stage was done.
  StageTimings timings;
  [[nodiscard]] std::string encode() const;
  static Result<SnapshotReply> decode(ByteView bytes);
};
/// Requests are numbered from 1. A shim that turns a client away answers this one, then closes the
/// connection.
inline constexpr std::uint32_t kNoRequest = 0;

/// What a snapshot has come to before it is answered. Sent before the kSnapshot with the same ticket.
struct SnapshotStageRequest {
  enum class Stage : std::uint8_t {
    /// -> SnapshotReply, without what is known only at the end: the files are complete, and the process of
    /// the saved machine stands still (Machine::hold()). The snapshot may still fail, and the saved machine
    /// go on.
    kSaved,
    kMoved,  ///< -> empty: the guest lives in another machine, and the saved one never runs again.
  };
  std::uint64_t ticket = 0;
  Stage stage = Stage::kSaved;
  [[nodiscard]] std::string encode() const;
  static Result<SnapshotStageRequest> decode(ByteView bytes);
};

struct StopRequest {
  std::int32_t signal = 0;  ///< 0: the image's stop signal.
  std::uint32_t grace_ms = 10'000;
  bool discard = false;  ///< The disk will be removed: no sync, no grace, just end.
  [[nodiscard]] std::string encode() const;
  static Result<StopRequest> decode(ByteView bytes);
};
struct UpdateRequest {
  std::optional<std::string> name;
  std::optional<std::map<std::string, std::string>> labels;
  std::optional<std::uint64_t> idle_timeout_ms, max_lifetime_ms;
  /// CLOCK_MONOTONIC in ns; later it is refused: who asked has given up and told so. 0: never.
  std::uint64_t valid_until_ns = 0;
  [[nodiscard]] std::string encode() const;
  static Result<UpdateRequest> decode(ByteView bytes);
};
struct ClaimRequest {
  std::string record_json;  ///< The record it shall have from now on; id and files must be the ones it has.
  int owner_pid = 0;
  [[nodiscard]] std::string encode() const;
  static Result<ClaimRequest> decode(ByteView bytes);
};
/// How the name of a kNetSet's file begins. Longer than a frame when it has thousands of rules; what is left
/// behind is swept as a temporary file.
inline constexpr const char* kNetSetFile = "network.tmp-";
struct NetSetRequest {
  NetworkRecord network;  ///< As the record shall have it; what was used of the quota stays.
  NetSpec spec;           ///< For the network process; its private networks stay as they are.
  [[nodiscard]] std::string encode() const;
  static Result<NetSetRequest> decode(ByteView bytes);
};
/// The private networks that the sandbox is in. Nobody's record: the networks' own say it.
struct NetworksRequest {
  NetSpec spec;  ///< What is not about private networks is used only where no network process runs yet.
  [[nodiscard]] std::string encode() const;
  static Result<NetworksRequest> decode(ByteView bytes);
};
struct WaitReply {
  std::string record_json;  ///< brief_record_json()
  [[nodiscard]] std::string encode() const;
  static Result<WaitReply> decode(ByteView bytes);
};
/// A record that fits into a frame: one that is too long loses its environment, arguments and labels (they
/// are in the file).
[[nodiscard]] std::string brief_record_json(SandboxRecord record);

struct ShimInfo {
  std::string record_json;  ///< brief_record_json()
  std::uint64_t hypervisor_private_bytes = 0, shim_private_bytes = 0, guest_private_bytes = 0;
  std::uint64_t cpu_ns = 0;
  std::uint64_t log_bytes_lost = 0;  ///< Of the main command's output, because the log could not be written.
  std::uint32_t clients = 0, streams = 0;
  int hypervisor_pid = 0;
  int network_pid = 0;  ///< 0: none.
  std::string console_tail;
  [[nodiscard]] std::string encode() const;
  static Result<ShimInfo> decode(ByteView bytes);
};

}  // namespace drupe
