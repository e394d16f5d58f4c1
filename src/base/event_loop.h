// One thread, one epoll set: descriptors, timers and deferred calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>

#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

/// CLOCK_MONOTONIC in nanoseconds, which other processes of this machine read alike.
inline std::uint64_t monotonic_ns(Clock::time_point time) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count());
}

/// Owns the epoll descriptor, not the watched ones. Used by one thread only. Callbacks may add and remove
/// watches and timers, also their own.
class EventLoop {
 public:
  using TimerId = std::uint64_t;
  /// `events` is an EPOLL* mask.
  using OnReady = std::function<void(std::uint32_t events)>;

  static Result<std::unique_ptr<EventLoop>> create();

  /// Level-triggered. `fd` must stay open until unwatch(). One watch for a descriptor.
  Status watch(int fd, std::uint32_t events, OnReady on_ready);
  /// Changes the mask of a watched descriptor; 0 keeps only EPOLLERR and EPOLLHUP.
  Status modify(int fd, std::uint32_t events);
  /// Forgets `fd`; pending events for it are dropped. Unknown descriptors are ignored.
  void unwatch(int fd);

  TimerId after(std::chrono::milliseconds delay, std::function<void()> on_fire);
  void cancel(TimerId id);
  /// Runs `call` after the current callbacks, before the next wait.
  void defer(std::function<void()> call);

  /// Waits for events once, at most until `deadline`, and runs their callbacks.
  Status run_once(Deadline deadline);
  /// Runs until stop().
  Status run();
  /// Runs until `done()` or the deadline; false when the deadline came first. May be nested in a callback.
  Result<bool> run_until(const std::function<bool()>& done, Deadline deadline);
  void stop() { stopped_ = true; }

 private:
  struct Watch {
    std::uint64_t generation;
    std::shared_ptr<OnReady> on_ready;
  };
  struct Timer {
    TimerId id;
    std::function<void()> on_fire;
  };
  explicit EventLoop(UniqueFd epoll) : epoll_(std::move(epoll)) {}
  void fire_timers();
  void run_deferred();

  UniqueFd epoll_;
  std::unordered_map<int, Watch> watches_;
  std::multimap<Deadline, Timer> timers_;
  std::deque<std::function<void()>> deferred_;
  std::uint64_t next_generation_ = 1;
  TimerId next_timer_ = 1;
  bool stopped_ = false;
};

}  // namespace drupe
