#include "cli/output_sink.h"

#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"

namespace drupe::cli {

OutputSink::OutputSink(EventLoop& loop, int fd) : loop_(loop), fd_(fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return;
  if (S_ISSOCK(status.st_mode)) {
    kind_ = Kind::kSocket;
  } else if (S_ISFIFO(status.st_mode) || ::isatty(fd) == 1) {
    auto own = open_at(AT_FDCWD, proc_fd_path(fd), O_WRONLY | O_NONBLOCK | O_NOCTTY);
    if (own) {
      own_ = *std::move(own);
      fd_ = own_.get();
      kind_ = Kind::kNonBlocking;
    } else {
      kind_ = Kind::kPolled;  // E.g. a terminal that belongs to another user.
    }
  }
}

OutputSink::~OutputSink() {
  if (watched_) loop_.unwatch(fd_);
}

long OutputSink::write_some(std::string_view bytes) const {
  if (kind_ == Kind::kSocket) return ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (kind_ == Kind::kPolled) {
    pollfd ready{fd_, POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) {
      errno = EAGAIN;
      return -1;
    }
    // A pipe that poll() calls writable takes PIPE_BUF bytes without blocking.
    bytes = bytes.substr(0, 512);
  }
  return ::write(fd_, bytes.data(), bytes.size());
}

void OutputSink::fail(int error) {
  broken_ = true;
  if (watched_) loop_.unwatch(fd_);
  watched_ = false;
  const auto dropped = static_cast<std::uint32_t>(pending_.size() - offset_);
  pending_.clear();
  offset_ = 0;
  if (events_.on_broken) events_.on_broken(error);
  if (dropped > 0 && events_.on_taken) events_.on_taken(dropped);
}

void OutputSink::write(std::string_view bytes) {
  if (broken_) {
    if (events_.on_taken) events_.on_taken(static_cast<std::uint32_t>(bytes.size()));
    return;
  }
  pending_.append(bytes);
  if (!watched_) flush();
}

void OutputSink::flush() {
  std::uint32_t taken = 0;
  int error = 0;
  while (offset_ < pending_.size()) {
    const long count = write_some(std::string_view(pending_).substr(offset_));
    if (count >= 0) {
      offset_ += static_cast<std::size_t>(count);
      taken += static_cast<std::uint32_t>(count);
    } else if (errno != EINTR) {
      error = errno;
      break;
    }
  }
  if (offset_ == pending_.size()) {
    pending_.clear();
    offset_ = 0;
  }
  const bool blocked = error == EAGAIN || error == EWOULDBLOCK;
  if (blocked && !watched_) {
    const auto watching = loop_.watch(fd_, EPOLLOUT, [this](std::uint32_t) { flush(); });
    if (watching) {
      watched_ = true;
    } else {
      error = watching.error().sys_errno;
    }
  } else if (watched_ && pending_.empty()) {
    loop_.unwatch(fd_);
    watched_ = false;
  }
  if (taken > 0 && events_.on_taken) events_.on_taken(taken);
  if (error != 0 && !(blocked && watched_)) fail(error);
}

}  // namespace drupe::cli
