// Reads stdin for a command, only as fast as the command takes it.
#pragma once

#include <functional>
#include <string>

#include "base/event_loop.h"

namespace drupe::cli {

/// Used by the loop's thread. Nothing is read before start().
class InputSource {
 public:
  struct Events {
    /// Takes bytes; returns how many it took. The rest is offered again after resume().
    std::function<std::size_t(std::string_view bytes)> on_bytes;
    /// stdin is at its end (or unreadable) and everything was taken. Called once.
    std::function<void()> on_end;
  };

  InputSource(EventLoop& loop, int fd) : loop_(loop), fd_(fd) {}
  ~InputSource() { stop(); }
  InputSource(const InputSource&) = delete;
  InputSource& operator=(const InputSource&) = delete;

  void start(Events events);
  /// The taker has room again.
  void resume();
  /// Reads no more.
  void stop();

 private:
  void read_some();
  void schedule();
  void pass_on();

  EventLoop& loop_;
  const int fd_;
  Events events_;
  std::string pending_;
  bool ended_ = false, stopped_ = true;
  bool watched_ = false;
  bool plain_file_ = false;  ///< epoll refuses regular files: they are always ready.
  std::shared_ptr<bool> alive_ =
      std::make_shared<bool>(true);  ///< Deferred calls look at it: they may outlive this object.
};

}  // namespace drupe::cli
