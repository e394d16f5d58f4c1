// The agent's heart: requests of the control port, streams of the bulk port, epochs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/boot.h"
#include "agent/freezer.h"
#include "agent/helper.h"
#include "agent/job.h"
#include "agent/launch.h"
#include "agent/ready_child.h"
#include "agent/repair.h"
#include "agent/work.h"

namespace drupe::agent {

/// Owns everything of the running agent. One thread.
class Server : public JobHost {
 public:
  Server(EventLoop& loop, Cgroups cgroups, Work work, KernelRepair repair, Devices devices);
  ~Server() override;
  /// Serves until the machine is powered off; returns only on a failure of the loop.
  Status run();

  // JobHost
  EventLoop& loop() override { return loop_; }
  Port& bulk() override { return *bulk_; }
  [[nodiscard]] bool quiet() const override { return quiet_; }
  void release(std::unique_ptr<ExecCgroup> cgroup) override { cgroups_.release(std::move(cgroup)); }
  void drain(UniqueFd fd) override;
  void job_finished(Job& job) override;

 private:
  struct Stream {
    std::unique_ptr<OpenAssembler> opening;
    Job* job = nullptr;
  };

  // Ports and epochs (server.cpp).
  Status open_control();
  Status open_bulk();
  void on_marker(Port& port, std::uint64_t epoch);
  void new_epoch(std::uint64_t epoch);
  void desynced(const char* port, const Error& error);
  void start_over(Status (Server::*open)());
  Status on_bulk(const Frame& frame);
  Status on_stream_frame(Stream& stream, const Frame& frame);
  void on_room();
  void watch_init();
  void work_ended();

  // Streams (streams.cpp).
  Status open_stream(const Frame& frame);
  void start_stream(std::uint32_t id);
  Status open_exec(std::uint32_t id, const ExecOptions& options);
  Result<Job::Process> start_command(const ExecOptions& options, const Defaults& defaults);
  /// For a ready child that ended before it had taken its order.
  Result<Job::Process> start_again(const std::string& order);
  Status open_attach(std::uint32_t id, const ExecOptions& options);
  Status open_task(std::uint32_t id, const OpenRequest& request);
  void refuse(std::uint32_t id, const Error& error);
  void reset_stream(std::uint32_t id, const Error& error);
  void host_reset(std::uint32_t id);
  void forget(Job& job);

  // Requests (requests.cpp).
  Status on_request(const Frame& frame);
  void reply(std::uint32_t id, const Result<std::string>& value);
  void reply_status(std::uint32_t id, const Status& value);
  void send_event(EventKind kind, std::string_view text);
  Result<std::string> hello() const;
  void set_up(std::uint32_t id, const SetUpRequest& request);
  void freeze(std::uint32_t id, const FreezeRequest& request);
  void try_quiet();
  void thaw(std::uint32_t id);
  void resume_jobs();
  void grow_root(std::uint32_t id, ByteView body);
  void sync(std::uint32_t id);
  void flush(std::uint32_t id);
  [[nodiscard]] std::string stats() const;
  Status signal_exec(const SignalExecRequest& request);
  void list_processes(std::uint32_t id);

  // Shutdown (shutdown.cpp).
  void shut_down(std::uint32_t id, const ShutdownRequest& request);
  void kill_everything();
  void unmount();
  void finish();

  EventLoop& loop_;
  Cgroups cgroups_;
  Work work_;
  KernelRepair repair_;
  Devices devices_;
  std::unique_ptr<Port> control_, bulk_;
  Helpers helpers_;
  Flusher flusher_;
  Freezer freezer_;
  ReadyChild ready_;
  Defaults defaults_;

  std::uint64_t epoch_ = 0;
  std::unordered_map<std::uint32_t, Stream> streams_;
  std::map<std::string, std::unique_ptr<Job>> execs_;
  std::vector<std::unique_ptr<Job>> tasks_;
  std::vector<std::string> finished_;  ///< Exec ids whose facts wait for an attach, oldest first.
  std::map<int, UniqueFd> drains_;
  std::size_t opening_bytes_ = 0;

  bool quiet_ = false;                                    ///< See JobHost::quiet().
  bool control_quiet_ = false;                            ///< From the freeze's reply to the marker.
  std::uint32_t barrier_ = 0;                             ///< The last one that the host sent.
  std::uint32_t freezing_id_ = 0, freezing_barrier_ = 0;  ///< The kFreeze request that is not answered yet.
  std::vector<std::string> late_replies_;
  bool ended_ = false;  ///< User work is gone.
  bool shutting_down_ = false;
  std::uint32_t shutdown_id_ = 0;
  EventLoop::TimerId grace_timer_ = 0;
  std::function<void()> on_main_finished_;
};

/// Ends the machine. Returns only when the kernel refuses.
void power_off();

/// Reads counters only. stats.cpp.
[[nodiscard]] GuestStats collect_stats(const Work& work);
/// Walks the cgroups and /proc, where a stuck process can block, so only for children. `execs`: cgroup name
/// to exec id. `hidden`: the name of a cgroup that is passed over.
[[nodiscard]] ProcessList collect_processes(const std::map<std::string, std::string>& execs,
                                            const std::string& hidden);

}  // namespace drupe::agent
