#include "cli/input_source.h"

#include <array>
#include <cerrno>

#include <sys/epoll.h>
#include <unistd.h>

namespace drupe::cli {

void InputSource::start(Events events) {
  events_ = std::move(events);
  stopped_ = false;
  schedule();
}

void InputSource::resume() {
  if (stopped_) return;
  pass_on();
  if (pending_.empty() && !ended_ && !stopped_) schedule();
}

void InputSource::stop() {
  stopped_ = true;
  *alive_ = false;
  if (watched_) loop_.unwatch(fd_);
  watched_ = false;
}

void InputSource::schedule() {
  if (watched_ || stopped_) return;
  if (!plain_file_) {
    const auto watching = loop_.watch(fd_, EPOLLIN, [this](std::uint32_t) { read_some(); });
    if (watching) {
      watched_ = true;
      return;
    }
    plain_file_ = true;
  }
  loop_.defer([this, alive = alive_] {
    if (*alive) read_some();
  });
}

void InputSource::read_some() {
  static thread_local std::array<char, 64 * 1024> buffer;
  const long count = ::read(fd_, buffer.data(), buffer.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) {
    if (!watched_) schedule();
    return;
  }
  if (count <= 0) {
    ended_ = true;
  } else {
    pending_.assign(buffer.data(), static_cast<std::size_t>(count));
  }
  pass_on();
  if (stopped_) return;
  if (watched_ && (ended_ || !pending_.empty())) {
    loop_.unwatch(fd_);
    watched_ = false;
  } else if (!watched_ && !ended_ && pending_.empty()) {
    schedule();
  }
}

void InputSource::pass_on() {
  if (!pending_.empty()) pending_.erase(0, events_.on_bytes(pending_));
  if (ended_ && pending_.empty() && !stopped_) {
    stop();
    events_.on_end();
  }
}

}  // namespace drupe::cli
