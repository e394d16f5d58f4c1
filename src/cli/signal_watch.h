// Signals as events of the loop.
#pragma once

#include <functional>
#include <initializer_list>

#include <signal.h>

#include "base/event_loop.h"
#include "base/unique_fd.h"

namespace drupe::cli {

/// Blocks the given signals for the calling thread while it lives and calls `on_signal` from the loop
/// instead.
class SignalWatch {
 public:
  static Result<std::unique_ptr<SignalWatch>> create(EventLoop& loop, std::initializer_list<int> signals,
                                                     std::function<void(int signal)> on_signal);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  SignalWatch(EventLoop& loop, UniqueFd fd, sigset_t before)
      : loop_(loop), fd_(std::move(fd)), before_(before) {}
  EventLoop& loop_;
  UniqueFd fd_;
  sigset_t before_;
};

}  // namespace drupe::cli
