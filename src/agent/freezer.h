// Stops user work with its files flushed, for a save, all or nothing, and lets it go on.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "agent/cgroups.h"
#include "agent/flusher.h"
#include "base/event_loop.h"

namespace drupe::agent {

/// Work is stopped first and its files are flushed then, by the flusher, so that the loop never waits for a
/// disk: what is then on the disk is everything that was written, in a journal that any mount replays. Who
/// expects much to flush has it done before, while work runs (kFlush).
///
/// The file systems are not frozen (FIFREEZE). That would only empty the journal, and its thaw writes the
/// superblock before anything else can happen: the dearest step of a restore on an emulated machine, which
/// runs the kernel's whole block layer for the first time (docs/adr/0003).
class Freezer {
 public:
  using Done = std::function<void(Status)>;

  Freezer(EventLoop& loop, Flusher& flusher, Cgroups& cgroups)
      : loop_(loop), flusher_(flusher), cgroups_(cgroups) {}
  ~Freezer();
  Freezer(const Freezer&) = delete;
  Freezer& operator=(const Freezer&) = delete;

  /// Freezes user work and flushes. When the deadline passes or a step fails, everything is undone and `done`
  /// gets the error. Waits while an earlier call is being undone; kBusy while one is in progress.
  void freeze(std::chrono::milliseconds deadline, Done done);
  /// User work goes on. Nothing when it is not frozen.
  Status thaw();
  /// From the success of freeze() to thaw().
  [[nodiscard]] bool frozen() const { return state_ == State::kFrozen; }

 private:
  enum class State { kIdle, kFreezingWork, kFlushing, kFrozen, kUndoing };
  void work_changed();
  void on_flushed(bool flushed);
  void succeed();
  void undo(Error error);
  void stop_waiting();

  EventLoop& loop_;
  Flusher& flusher_;
  Cgroups& cgroups_;
  State state_ = State::kIdle;
  EventLoop::TimerId timer_ = 0;
  Done done_;
  std::function<void()> next_;  ///< A freeze that waits for the end of an undo.
};

}  // namespace drupe::agent
