#include "protocol/port.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace drupe {
namespace {

constexpr std::size_t kReadSize = 65536;
// Reads in one turn, so that one busy port does not starve the others.
constexpr int kReadsPerTurn = 4;
// A buffer that grew beyond this is given back when it is empty, or when its owner says so.
constexpr std::size_t kKeptCapacity = std::size_t{512} * 1024;
constexpr std::size_t kKeptAtRest = std::size_t{80} * 1024;

}  // namespace

Result<std::unique_ptr<Port>> Port::create(EventLoop& loop, UniqueFd fd, Options options,
                                           Callbacks callbacks) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return fail_sys("Making a connection non-blocking failed", errno);
  std::unique_ptr<Port> port(new Port(loop, std::move(fd), options, std::move(callbacks)));
  port->watched_ = EPOLLIN;
  DRUPE_TRY(loop.watch(port->fd_.get(), EPOLLIN,
                       [raw = port.get()](std::uint32_t events) { raw->on_ready(events); }));
  return port;
}

Port::Port(EventLoop& loop, UniqueFd fd, Options options, Callbacks callbacks)
    : loop_(loop), fd_(std::move(fd)), options_(options), callbacks_(std::move(callbacks)) {}

Port::~Port() {
  *alive_ = false;
  loop_.unwatch(fd_.get());
}

void Port::reserve(std::size_t more) {
  if (begin_ == end_) begin_ = end_ = 0;
  if (end_ + more <= capacity_) return;
  const std::size_t used = queued();
  if (used + more <= capacity_ && begin_ >= used) {
    std::memcpy(buffer_.get(), buffer_.get() + begin_, used);
  } else {
    const std::size_t capacity = std::max(used + more, capacity_ * 2);
    std::unique_ptr<char[]> bigger(new char[capacity]);
    if (used != 0) std::memcpy(bigger.get(), buffer_.get() + begin_, used);
    buffer_ = std::move(bigger);
    capacity_ = capacity;
  }
  begin_ = 0;
  end_ = used;
}

void Port::send(FrameType type, Channel channel, std::uint32_t id, std::string_view payload) {
  const auto room = prepare(payload.size());
  if (!payload.empty()) std::memcpy(room.data(), payload.data(), payload.size());
  commit(type, channel, id, payload.size());
}

std::span<char> Port::prepare(std::size_t payload) {
  reserve(kFrameHeaderSize + payload);
  return {buffer_.get() + end_ + kFrameHeaderSize, payload};
}

void Port::commit(FrameType type, Channel channel, std::uint32_t id, std::size_t payload) {
  if (broken_) return;
  write_frame_header(buffer_.get() + end_, type, channel, id, static_cast<std::uint32_t>(payload));
  end_ += kFrameHeaderSize + payload;
  schedule_flush();
}

void Port::send_raw(std::string_view bytes) {
  if (broken_ || bytes.empty()) return;
  reserve(bytes.size());
  std::memcpy(buffer_.get() + end_, bytes.data(), bytes.size());
  end_ += bytes.size();
  schedule_flush();
}

void Port::send_marker(std::uint64_t epoch) {
  const Marker marker = make_marker(epoch);
  send_raw(as_text(ByteView(marker)));
}

void Port::await_marker(std::uint64_t expected) {
  parser_.reset();
  scanner_ = MarkerScanner(expected);
  awaiting_marker_ = true;
}

void Port::pause_reading(bool paused) {
  paused_ = paused;
  update_watch();
}

void Port::when_flushed(std::function<void()> call) {
  on_flushed_ = std::move(call);
  schedule_flush();
}

void Port::drop_queue() {
  begin_ = end_ = 0;
  schedule_flush();
}

void Port::give_back() {
  if (begin_ != end_ || capacity_ <= kKeptAtRest) return;
  buffer_.reset();
  capacity_ = begin_ = end_ = 0;
}

void Port::schedule_flush() {
  if (!has_room()) starved_ = true;
  if (flush_scheduled_ || broken_) return;
  flush_scheduled_ = true;
  loop_.defer([this, alive = alive_] {
    if (!*alive) return;
    flush_scheduled_ = false;
    flush();
  });
}

void Port::flush() {
  while (begin_ != end_ && !broken_) {
    // A library may live in a program that has not ignored SIGPIPE. Only sockets know the flag.
    const ssize_t put = options_.hangup_is_end
                            ? ::send(fd_.get(), buffer_.get() + begin_, end_ - begin_, MSG_NOSIGNAL)
                            : ::write(fd_.get(), buffer_.get() + begin_, end_ - begin_);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) break;
    if (put < 0 && !options_.hangup_is_end) break;
    if (put < 0) return break_off(fail_sys("Sending failed", errno).error());
    begin_ += static_cast<std::size_t>(put);
  }
  if (queued() > options_.limit)
    return break_off(
        Error{ErrorCode::kLimit, "The other side of a connection does not read what was sent to it", {}, 0});
  after_flush();
}

void Port::after_flush() {
  if (begin_ == end_ && capacity_ > kKeptCapacity) {
    buffer_.reset();
    capacity_ = begin_ = end_ = 0;
  }
  update_watch();
  const auto alive = alive_;
  if (begin_ == end_ && on_flushed_) std::exchange(on_flushed_, nullptr)();
  if (!*alive || broken_) return;
  if (starved_ && queued() < options_.high_water / 2) {
    starved_ = false;
    if (callbacks_.on_room) callbacks_.on_room();
  }
}

void Port::update_watch() {
  if (broken_) return;
  std::uint32_t events = 0;
  if (!paused_) events |= EPOLLIN;
  if (begin_ != end_) events |= EPOLLOUT;
  if (hung_up_) events |= EPOLLIN | EPOLLOUT | static_cast<std::uint32_t>(EPOLLET);
  if (events == watched_) return;
  watched_ = events;
  // The descriptor is watched from create() to the end, so this cannot fail.
  [[maybe_unused]] const auto changed = loop_.modify(fd_.get(), events);
}

void Port::on_ready(std::uint32_t events) {
  const auto alive = alive_;
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && (!paused_ || (events & EPOLLIN) == 0)) read_some();
  if (!*alive || broken_) return;
  if (begin_ != end_ && (events & EPOLLOUT) != 0) flush();
}

/// What is there, up to the size of `chunk`; 0 at the end, negative with errno. A virtio port gives one page
/// a call, so several are gathered: whole frames are cheaper to pass on than their pages. A socket gives all
/// it has at once.
ssize_t Port::gather(std::span<std::uint8_t> chunk) {
  std::size_t filled = 0;
  while (filled < chunk.size()) {
    const ssize_t got = ::read(fd_.get(), chunk.data() + filled, chunk.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return filled > 0 ? static_cast<ssize_t>(filled) : got;
    filled += static_cast<std::size_t>(got);
    if (options_.hangup_is_end) break;
  }
  return static_cast<ssize_t>(filled);
}

void Port::read_some() {
  std::array<std::uint8_t, kReadSize> chunk;  // on the stack: an idle connection needs no buffer
  const auto alive = alive_;
  for (int turn = 0; turn < kReadsPerTurn; ++turn) {
    const ssize_t got = gather(chunk);
    const bool nothing_yet = got < 0 && errno == EAGAIN;
    if (got <= 0 && !nothing_yet) return hung_up();
    if (hung_up_) {
      hung_up_ = false;
      update_watch();
    }
    if (nothing_yet) return;
    auto taken = take({chunk.data(), static_cast<std::size_t>(got)});
    if (!*alive || broken_) return;
    if (!taken) return break_off(std::move(taken).error());
    if (paused_ || static_cast<std::size_t>(got) < kReadSize / 2) return;
  }
}

Status Port::take(ByteView bytes) {
  const auto alive = alive_;
  std::string refused;  // what `bytes` views after a desync
  while (!bytes.empty()) {
    if (awaiting_marker_) {
      if (!scanner_.scan(bytes)) return {};
      awaiting_marker_ = false;
      if (callbacks_.on_marker) callbacks_.on_marker(scanner_.epoch());
      if (!*alive || broken_) return {};
      continue;
    }
    auto fed = parser_.feed(bytes, [&](const Frame& frame) -> Status {
      if (!*alive || broken_ || awaiting_marker_) return {};
      return callbacks_.on_frame(frame);
    });
    if (!*alive || broken_) return {};
    if (awaiting_marker_) {
      // A callback ended this epoch; the peer waits for a word before it writes the next marker.
      parser_.reset();
      return {};
    }
    if (fed) return {};
    if (!callbacks_.on_desync) return fed;
    refused = parser_.take_leftover();
    bytes = as_bytes(refused);
    await_marker(0);
    callbacks_.on_desync(std::move(fed).error());
    if (!*alive || broken_) return {};
  }
  return {};
}

void Port::hung_up() {
  if (options_.hangup_is_end)
    return break_off(Error{ErrorCode::kUnavailable, "The other side closed the connection", {}, 0});
  if (hung_up_) return;
  hung_up_ = true;
  update_watch();
}

void Port::break_off(Error error) {
  if (broken_) return;
  broken_ = true;
  loop_.unwatch(fd_.get());
  begin_ = end_ = 0;
  on_flushed_ = nullptr;
  if (callbacks_.on_broken) callbacks_.on_broken(std::move(error));
}

}  // namespace drupe
