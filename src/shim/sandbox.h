// One sandbox as its shim sees it: start, clients' requests, operations, timers, end. Single-threaded on one
// event loop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/event_loop.h"
#include "hypervisor/hypervisor.h"
#include "shim/client_hub.h"
#include "shim/guest_link.h"
#include "shim/host_resolvers.h"
#include "shim/launcher.h"
#include "shim/main_command.h"
#include "shim/messages.h"
#include "shim/network.h"
#include "shim/record.h"
#include "shim/saver.h"
#include "shim/self_control.h"
#include "shim/spec.h"
#include "shim/usage.h"

namespace drupe {

class Replacement;

/// What main() gives a sandbox. Descriptors are borrowed and live as long as it.
struct SandboxHost {
  int dir = -1;   ///< The sandbox's directory, also the current one.
  int lock = -1;  ///< Its locked lock file; -1: none (tests).
  int fork = -1;  ///< For ShimSpec::awaits_fork: kForkFd.
  /// The directory has got the place where it stays.
  std::function<void()> placed;
  /// Takes from the process what it needs no more, once the machine runs. Returns what the host did not
  /// allow.
  std::function<Result<std::vector<std::string>>()> lock_down;
  /// Starts the network's program, confined, also after lock_down(); absent: no sandbox can have a network.
  Network::Start start_network;
  /// Opens the host's resolv.conf(5); the loop runs nested.
  std::function<Result<UniqueFd>(Deadline deadline)> open_resolvers;
  /// A channel to a member of a private network, for an encoded net::PeerId; also after lock_down(). Absent:
  /// none can be reached. The loop may run nested.
  std::function<Result<UniqueFd>(std::string_view peer, Deadline deadline)> connect_peer;
  /// After an automatic removal has emptied the directory.
  std::function<void()> remove_directory;
};

class Sandbox {
 public:
  Sandbox(EventLoop& loop, Hypervisor& hypervisor, SandboxHost host, ShimSpec spec, SandboxRecord record);
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  /// Starts the machine (and saves it, for kMakeBase). On failure the record is as it was.
  Status start();
  [[nodiscard]] const Launcher::Timings& timings() const { return timings_; }
  /// Of the start, for the user.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  /// Serves until the sandbox has ended or was paused and everything about it is on disk. Precondition:
  /// start() succeeded.
  Status serve();
  /// An orderly end from outside (SIGTERM).
  void stop(EndCause cause, std::string text);
  [[nodiscard]] ClientHub& hub() { return hub_; }

 private:
  enum class EndHow : std::uint8_t { kGraceful, kKill, kGone };
  struct EndPlan {
    EndCause cause = EndCause::kNone;
    std::string text;
    EndHow how = EndHow::kKill;
    std::int32_t signal = 0;
    std::uint32_t grace_ms = 0;
  };
  struct Operation {
    ReplyFn reply;
    std::function<Result<std::string>()> run;
  };

  // sandbox_fork.cpp
  /// For awaits_fork: starts the machine as far as it goes without the parent's save, waits for that and
  /// reads the record anew, into `updated` as well.
  Status await_save(Launcher& launcher, SandboxRecord& updated);
  Status await_fork_byte(char wanted, Deadline deadline);

  // sandbox.cpp
  GuestLink::Callbacks link_callbacks();
  Status confine();
  void adopt_machine(Launched launched);
  /// What is left of a machine that was replaced.
  struct Replaced {
    std::unique_ptr<Machine> machine;
    bool ended = false;
  };
  /// Goes on with `next`; what becomes of the machine before it is the caller's to decide.
  std::shared_ptr<Replaced> replace_machine(std::unique_ptr<Machine> next);
  void watch_machine();
  /// Of all machines that this sandbox has had.
  [[nodiscard]] std::string console_tail() const;
  Status become_running();
  Status prepare_main();
  void start_main();
  void on_main_ended(const ExitFacts& facts);
  void watch_owner(int pid);
  void arm_lifetime();
  void touch();
  void write_record_or_log();
  /// For crash tests, see docs/states.md.
  void pass_failpoint(std::string_view name);

  // sandbox_self.cpp
  void listen_to_guest();
  void on_wish_of_guest(SelfControl::Wish wish);
  void pause_for_guest(int tries);

  // sandbox_end.cpp
  void request_end(EndPlan plan);
  void finish();
  void shut_down_guest(const EndPlan& plan);
  void settle_cause(EndPlan& plan);
  void part_from_clients(const Error& error);
  void remove_everything();
  void sweep();

  // sandbox_requests.cpp
  Result<std::unique_ptr<ClientSideStream>> open_stream(const ClientStreamRef& client, OpenRequest request);
  void on_request(std::uint16_t kind, ByteView body, ReplyFn reply);
  void on_shim_request(ShimRequest kind, ByteView body, const ReplyFn& reply);
  void on_stop(ByteView body, const ReplyFn& reply);
  Result<std::string> info() const;
  Result<std::string> update(ByteView body);
  Result<std::string> claim(ByteView body);
  Result<std::string> grow_disk(ByteView body);
  /// It has ended, and if it removes itself, its record on disk says so already: nothing may be written over
  /// it.
  [[nodiscard]] bool removes_itself_now() const { return end_plan_ && record_.auto_remove; }
  void run_operation(ReplyFn reply, std::function<Result<std::string>()> run);
  void next_operation();
  void refuse_operations();

  // sandbox_save.cpp
  Result<std::string> pause();
  void after_pause(Saver& saver);
  void on_snapshot(ByteView body, const ReplyFn& reply);
  void on_snapshot_stage(ByteView body, const ReplyFn& reply);
  /// Answers those who asked for this stage of that snapshot.
  void tell_stage(std::uint64_t ticket, SnapshotStageRequest::Stage stage, const Result<std::string>& answer);
  Result<std::string> snapshot(const SnapshotRequest& request);
  Status go_on_in(Replacement& next, SnapshotReply& reply, Saver& saver, std::uint64_t ticket,
                  StageMarks& marks, Deadline limit);
  Status make_base();
  void exercise();
  SaveNames next_names();
  /// Only in operations, as is everything that waits for the machine.
  void flatten_if_long();
  void finish_flattening();
  Status wait_for_flattening(Deadline deadline);

  // sandbox_network.cpp
  std::unique_ptr<Network> make_network(const SandboxRecord& record, const NetSpec& spec, UniqueFd frames);
  void adopt_network(std::unique_ptr<Network> network);
  Result<std::string> restart_network();
  void follow_resolvers();
  Result<std::string> refresh_resolvers();
  /// What a save keeps: which connections there are, and what was used of the quota.
  void note_network(SavedState& saved);
  void note_usage();
  /// All of the guest's, before its network goes; precondition: the policy to come allows nothing.
  void end_connections(const NetSpec& spec, Deadline deadline);
  void on_net_request(net::NetRequest kind, ByteView body, const ReplyFn& reply);
  Result<std::string> set_policy(ByteView body);
  Status apply_network(const SandboxRecord& updated, const NetSpec& spec, Deadline deadline);
  /// The content of a file that a request names, which is removed.
  Result<std::string> take_request_file(ByteView body);
  Result<std::string> set_networks(ByteView body);
  void turn_peers_away(bool away);
  void on_network_event(ByteView payload);
  void answer_wanted_peers();
  Result<std::string> answer_wanted_peer();

  EventLoop& loop_;
  Hypervisor& hypervisor_;
  SandboxHost host_;
  ShimSpec spec_;
  SandboxRecord record_;
  Launcher::Timings timings_;
  std::vector<std::string> notes_;
  std::unique_ptr<Machine> machine_;
  std::optional<MachineEnd> machine_end_;
  std::string earlier_console_;  ///< Of machines before this one.
  UniqueFd net_peer_, net_end_;
  std::unique_ptr<Network> network_;
  std::vector<Clock::time_point> network_restarts_;
  std::unique_ptr<ResolverWatch> resolver_watch_;
  UniqueFd peer_listener_;
  bool peers_turned_away_ = false;
  std::deque<net::PeerId> wanted_peers_;  ///< By the network process; not yet answered.
  Usage usage_;
  // Destroyed before the link, in this order: streams borrow the link and the main command.
  std::unique_ptr<GuestLink> link_;
  std::unique_ptr<MainCommand> main_;
  std::unique_ptr<SelfControl> self_;
  bool told_of_self_ = false;
  ClientHub hub_;

  std::string replaced_ram_file_;  ///< Of the base that a cold boot left behind.
  UniqueFd owner_pidfd_;
  std::deque<Operation> operations_;
  bool operation_running_ = false;
  bool flattening_ = false;          ///< Until its nodes are gone, too.
  std::optional<Status> flattened_;  ///< The copying has ended; the nodes are still to be dropped.
  std::optional<EndPlan> end_plan_;
  bool ending_ = false, kill_now_ = false, over_ = false;
  std::vector<ReplyFn> waiters_, stoppers_;
  struct StageWaiter {
    SnapshotStageRequest request;
    ReplyFn reply;
  };
  std::vector<StageWaiter> stage_waiters_;
  std::optional<EventLoop::TimerId> lifetime_timer_, idle_timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

/// "SIGTERM", "TERM" or "15"; unknown: 15.
[[nodiscard]] int signal_number(const std::string& name);
[[nodiscard]] std::int64_t now_realtime_ns();
/// Notes what of the confinement the host did not allow.
void add_missing(SandboxRecord& record, const std::vector<std::string>& more);

}  // namespace drupe
