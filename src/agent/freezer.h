// Stops user work with its files flushed, for a save, all or nothing, and lets it go on.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "agent/cgroups.h"
#include "agent/work.h"
#include "base/event_loop.h"

namespace drupe::agent {

/// A child flushes, so that the loop never waits for a disk: once while work runs, which takes as long as it
/// takes, and once after the freezer has stopped every process, which finds little. What is then on the disk
/// is everything that was written, in a journal that any mount replays.
///
/// The file systems are not frozen (FIFREEZE). That would only empty the journal, and its thaw writes the
/// superblock before anything else can happen: the dearest step of a restore on an emulated machine, which
/// runs the kernel's whole block layer for the first time (docs/adr/0003).
class Freezer {
 public:
  using Done = std::function<void(Status)>;

  Freezer(EventLoop& loop, Work& work, Cgroups& cgroups) : loop_(loop), work_(work), cgroups_(cgroups) {}
  ~Freezer();
  Freezer(const Freezer&) = delete;
  Freezer& operator=(const Freezer&) = delete;

  /// Flushes, freezes user work, flushes the rest. When the deadline passes or a step fails, everything is
  /// undone and `done` gets the error. kBusy while an earlier call is not over.
  void freeze(std::chrono::milliseconds deadline, Done done);
  /// User work goes on. Nothing when it is not frozen.
  Status thaw();
  /// From the success of freeze() to thaw().
  [[nodiscard]] bool frozen() const { return state_ == State::kFrozen; }

 private:
  enum class State { kIdle, kFlushing, kFreezingWork, kFlushingRest, kFrozen, kUndoing };
  Status start_child();
  void on_child(std::uint32_t events);
  void work_changed();
  void succeed();
  void undo(Error error);
  void child_gone();
  void end_child();
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
