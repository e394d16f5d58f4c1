// Stops user work and the file systems for a save, all or nothing, and lets them go on.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "agent/cgroups.h"
#include "agent/work.h"
#include "base/event_loop.h"

namespace drupe::agent {

/// One child holds the frozen file systems, so the loop never blocks on them; it thaws them when told, and
/// when the agent dies.
class Freezer {
 public:
  using Done = std::function<void(Status)>;

  Freezer(EventLoop& loop, Work& work, Cgroups& cgroups) : loop_(loop), work_(work), cgroups_(cgroups) {}
  ~Freezer();
  Freezer(const Freezer&) = delete;
  Freezer& operator=(const Freezer&) = delete;

  /// Flushes, freezes user work, freezes the file systems. When the deadline passes or a step fails,
  /// everything is undone and `done` gets the error. kBusy while an earlier call is not over.
  void freeze(std::chrono::milliseconds deadline, Done done);
  /// File systems only; user work stays frozen. At once when they are not frozen.
  void thaw_filesystems(Done done);
  /// User work goes on. Precondition: file systems are thawed.
  Status thaw_work();
  /// From the success of freeze() to thaw_work().
  [[nodiscard]] bool frozen() const { return state_ == State::kFrozen || state_ == State::kWorkFrozen; }
  [[nodiscard]] bool idle() const { return state_ == State::kIdle; }

 private:
  enum class State {
    kIdle,
    kFlushing,
    kFreezingWork,
    kFreezingFiles,
    kFrozen,
    kThawingFiles,
    kWorkFrozen,
    kUndoing
  };
  Status start_child();
  void on_child(std::uint32_t events);
  void work_changed();
  void succeed();
  void undo(Error error);
  void tell(char command);
  void child_gone();
  void stop_waiting();

  EventLoop& loop_;
  Work& work_;
  Cgroups& cgroups_;
  State state_ = State::kIdle;
  UniqueFd child_, commands_, answers_;
  EventLoop::TimerId timer_ = 0;
  Done done_;
};

}  // namespace drupe::agent
