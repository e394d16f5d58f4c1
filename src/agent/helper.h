// Short-lived children of the agent itself, for work that may block: it never does so in the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/work.h"
#include "base/event_loop.h"

namespace drupe::agent {

/// Owns the helpers that run. They are in the agent's cgroup and PID namespace, unseen by user work and never
/// frozen with it.
class Helpers {
 public:
  using Body = std::function<Result<std::string>()>;
  using Done = std::function<void(Result<std::string>)>;

  Helpers(EventLoop& loop, Work& work) : loop_(loop), work_(work) {}
  ~Helpers();
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  /// Runs `body` in a child and hands its value (at most 128 KiB) to `done`; a child that dies gives kGuest.
  /// When the deadline (0: none) passes, `done` gets kTimeout; the child, which may be stuck in the kernel,
  /// is killed and reaped when it ends.
  void run(Body body, std::chrono::milliseconds deadline, Done done);

 private:
  struct Helper {
    UniqueFd pidfd, answer;
    std::string bytes;
    Done done;
    EventLoop::TimerId timer = 0;
  };
  void on_answer(std::uint64_t id);
  void on_end(std::uint64_t id);
  void finish(Helper& helper, Result<std::string> value);

  EventLoop& loop_;
  Work& work_;
  std::map<std::uint64_t, Helper> running_;
  std::uint64_t next_ = 1;
};

}  // namespace drupe::agent
