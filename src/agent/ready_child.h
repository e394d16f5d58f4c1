// A process that waits to become the next command.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/job.h"
#include "agent/launch.h"
#include "base/event_loop.h"

namespace drupe::agent {

/// Keeps at most one child in the namespaces of user work, in a cgroup of its own, with its pipes, that waits
/// for an order (order.h). Giving it one is a write() to its stdin; what it spares the command is the clone,
/// the namespaces and the pipes, most of what an emulated machine that was just restored has to translate
/// before a command runs (docs/adr/0005). One that was made before a save is there in every machine restored
/// from it.
///
/// User work sees the child as `drupe-ready` and may kill, stop or trace it. Nothing depends on its life:
/// a child that ends before it has taken its order has run nothing, so its command is started once more, the
/// ordinary way (Job::Process::again). Its rights are those of user work, and its memory may be read by the
/// guest's root only. Used by the loop's thread.
class ReadyChild {
 public:
  /// `may_start` is asked before a child is started.
  ReadyChild(EventLoop& loop, Work& work, Cgroups& cgroups, std::function<bool()> may_start);
  ~ReadyChild();
  ReadyChild(const ReadyChild&) = delete;
  ReadyChild& operator=(const ReadyChild&) = delete;

  /// Starts one now, unless there is one or may_start() says no. A guest without room for it has none.
  void prepare();
  /// The same a second from now, counted from the last call.
  void prepare_later();
  /// Calls back when no child is on its way to being ready any more, at once or after a second at most.
  void when_settled(std::function<void()> call);

  struct Used {
    Job::Process process;
    std::string order;  ///< As encoded.
  };
  /// Gives the child its order. Nothing when there is none, or when it is of no use for this command: one
  /// with a terminal, limits, or long arguments.
  std::optional<Used> use(const ExecOptions& options, const Defaults& defaults);

  /// Of the waiting child; null when there is none.
  [[nodiscard]] const ExecCgroup* cgroup() const { return process_.cgroup.get(); }

 private:
  Status open_once();
  Status start();
  void on_prepared();
  void on_end();
  void settle();
  void cancel(EventLoop::TimerId& timer);

  EventLoop& loop_;
  Work& work_;
  Cgroups& cgroups_;
  std::function<bool()> may_start_;
  Job::Process process_;   ///< Of the waiting child; without a pidfd there is none.
  UniqueFd null_;          ///< The agent's /dev/null: the user may have replaced the sandbox's.
  UniqueFd prepared_;      ///< An eventfd: a child has added to it when it was ready.
  bool usable_ = false;    ///< The child may be given an order, through its stdin.
  bool settling_ = false;  ///< There is a child that is not ready yet.
  EventLoop::TimerId start_timer_ = 0, settle_timer_ = 0;
  std::vector<std::function<void()>> waiting_;
};

}  // namespace drupe::agent
