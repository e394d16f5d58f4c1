// Starts a sandbox's machine by its record: boot or restore, markers, hello, identity, disk growth, thaw; a
// restore that does not come to life in time is tried again with a new process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hypervisor/hypervisor.h"
#include "shim/guest_link.h"
#include "shim/network.h"
#include "shim/record.h"
#include "shim/spec.h"

namespace drupe {

/// A machine whose agent has confirmed everything.
struct Launched {
  std::unique_ptr<Machine> machine;
  std::unique_ptr<GuestLink> link;
  /// Both ends of the network card's socket: the host's, and the machine's for one that takes its place.
  UniqueFd net_peer, net_end;
  std::unique_ptr<Network> network;  ///< Absent: no network.
};

class Launcher {
 public:
  using Timings = StageTimings;
  struct Options {
    LaunchMode mode = LaunchMode::kBoot;
    std::uint32_t retries = 1;  ///< Of a restore.
    Deadline deadline;
    /// Callbacks for the link of the machine that is kept; those of a failed attempt hear nothing.
    GuestLink::Callbacks link_callbacks;
    /// Encoded TrustBundle that the guest gets after a boot and from a base snapshot; empty: none.
    std::string trust;
    /// Set for a sandbox that has a network: makes its process, not yet begun, on the card's other end.
    std::function<std::unique_ptr<Network>(UniqueFd frames)> make_network;
    /// Waits until user work may run, when the agent has confirmed all else; absent: it may.
    std::function<Status(Deadline)> before_thaw;
  };
  /// `dir` and `record` are borrowed. The record's disk chain gets a new writable node where the mode asks
  /// for one, and machine_id and hostname are made up where they are missing; nothing is written to the
  /// record's file.
  Launcher(EventLoop& loop, Hypervisor& hypervisor, int dir, SandboxRecord& record)
      : loop_(loop), hypervisor_(hypervisor), dir_(dir), record_(record) {}

  Result<Launched> launch(Options options);
  /// Starts a machine that is to go on with what another one is about to save. The record's last disk node is
  /// its own, and made; the others may still be written. `net_end`: the network card's, which both machines
  /// hold then.
  Result<std::unique_ptr<Machine>> prepare(UniqueFd net_end, Deadline deadline);
  /// The same for launch(), which goes on with that machine if the record's disk chain is still the same
  /// then.
  Status prepare(Deadline deadline);
  [[nodiscard]] const Timings& timings() const { return timings_; }
  /// Sentences for the user about what of the last start did not go as wanted.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  Result<Launched> attempt(const Options& options, Deadline deadline);
  Result<LaunchSpec> make_spec(const Options& options, Launched& launched);
  Status make_card(LaunchSpec& spec, Launched& launched);
  Status start_machine(const Options& options, Launched& launched, Deadline deadline);
  Status begin_network(const Options& options, Launched& launched, Deadline deadline);
  Status set_up_network(const Options& options, Launched& launched, Deadline deadline);
  Status set_up_trust(const Options& options, GuestLink& link, Deadline deadline);
  Status add_memory(LaunchSpec& spec, bool restore);
  Status add_base(LaunchSpec& spec);
  Status add_disk(LaunchSpec& spec, bool restore);
  Status set_up(const Options& options, Launched& launched, Deadline deadline);
  void mark(const char* stage);

  EventLoop& loop_;
  Hypervisor& hypervisor_;
  int dir_;
  SandboxRecord& record_;
  Timings timings_;
  std::vector<std::string> notes_;
  Clock::time_point begun_ = Clock::now();
  bool network_failed_ = false;  ///< Which another attempt would not mend.
  bool trust_failed_ = false;    ///< The same.
  bool fresh_top_ = false;       ///< The chain's last node is new: every attempt starts with it empty.
  Launched prepared_;            ///< Without a link; for the first attempt.
  std::vector<std::string> prepared_chain_;
  std::uint64_t prepared_bytes_ = 0;
  bool may_run_ = false;            ///< before_thaw() has returned.
  std::uint64_t device_bytes_ = 0;  ///< Size of the disk below the last node: what a restored guest knows.
};

/// Opens what was saved.
Result<SavedMachine> open_saved(int dir, const SavedState& saved, std::uint64_t ram_bytes);
/// Gives the guest its clock, randomness and names (kSetUp).
Status send_identity(GuestLink& link, const SandboxRecord& record, bool new_identity, Deadline deadline);
/// Disk nodes, image and writable node included, beyond which the chain is flattened.
inline constexpr std::size_t kLongDiskChain = 8;
/// Layout for a new node that makes a chain of `nodes`: a long chain is going to be flattened into it.
[[nodiscard]] NodeLayout layout_for(std::size_t nodes);
/// A random epoch; never 0 nor all ones.
[[nodiscard]] std::uint64_t new_epoch();
/// The last lines of a console for a message, without control characters.
[[nodiscard]] std::string console_excerpt(const std::string& console);
/// Size that the guest sees of a disk node.
Result<std::uint64_t> disk_node_bytes(int fd, DiskFormat format);

}  // namespace drupe
