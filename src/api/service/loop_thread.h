// An event loop in a thread of its own, which other threads ask to do something there.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/event_loop.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe::api {

/// post() from any thread; everything posted runs on the loop, in order. The destructor ends the thread; what
/// was not run by then is dropped.
class LoopThread {
 public:
  static Result<std::unique_ptr<LoopThread>> start(const char* name);
  ~LoopThread();
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  using Call = std::function<void()>;
  void post(Call call);
  /// Only for what runs on it.
  EventLoop& loop() { return *loop_; }

 private:
  LoopThread(std::unique_ptr<EventLoop> loop, UniqueFd wake)
      : loop_(std::move(loop)), wake_(std::move(wake)) {}
  void run_posted();

  std::unique_ptr<EventLoop> loop_;
  UniqueFd wake_;
  std::mutex mutex_;
  std::deque<Call> posted_;  ///< Under mutex_.
  std::thread thread_;
};

}  // namespace drupe::api
