// The process that writes the guest's dirty files to its disks.
#pragma once

#include <functional>
#include <vector>

#include "agent/work.h"
#include "base/event_loop.h"

namespace drupe::agent {

/// A child of its own, because a flush waits for the disk and a file system of the guest's may make it wait
/// for ever. It is started once, before the machine is first saved, and waits for orders: a fork at each save
/// would cost an emulated machine that was restored a moment ago more than all the rest of the save.
class Flusher {
 public:
  /// Whether everything was flushed; false when the child was killed.
  using Done = std::function<void(bool)>;

  Flusher(EventLoop& loop, Work& work) : loop_(loop), work_(work) {}
  ~Flusher();
  Flusher(const Flusher&) = delete;
  Flusher& operator=(const Flusher&) = delete;

  /// Nothing when it runs.
  Status start();
  /// Flushes file systems on block devices, inner ones first: one on a loop device writes to the root. Starts
  /// the child when it does not run. While busy() it flushes once more after what it does.
  Status flush(Done done);
  [[nodiscard]] bool busy() const { return done_ != nullptr; }
  /// Kills the child, which keeps the user's mounts alive; `gone` comes after its end, which a flush may
  /// delay.
  void stop(std::function<void()> gone);

 private:
  Status order(Done done);
  void finish(bool flushed);
  void on_answer();
  void on_end();

  EventLoop& loop_;
  Work& work_;
  UniqueFd child_, orders_, answers_;
  Done done_;
  std::vector<Done> next_;
  std::function<void()> gone_;
};

}  // namespace drupe::agent
