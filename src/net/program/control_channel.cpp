#include "net/program/control_channel.h"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/pass_fds.h"
#include "protocol/net_control.h"

namespace drupe::net {
namespace {

constexpr std::size_t kLength = sizeof(std::uint32_t), kId = sizeof(std::uint32_t);
constexpr std::size_t kReadSize = 65536;

}  // namespace

ControlChannel::ControlChannel(EventLoop& loop, UniqueFd socket, OnRecord on_record, OnClosed on_closed)
    : loop_(loop),
      socket_(std::move(socket)),
      on_record_(std::move(on_record)),
      on_closed_(std::move(on_closed)) {}

ControlChannel::~ControlChannel() {
  if (!closed_) loop_.unwatch(socket_.get());
}

Status ControlChannel::start() {
  const int flags = ::fcntl(socket_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket_.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return fail_sys("Preparing the control socket failed", errno);
  events_ = EPOLLIN;
  return loop_.watch(socket_.get(), events_, [this](std::uint32_t events) { on_socket(events); });
}

void ControlChannel::close(Status why) {
  if (std::exchange(closed_, true)) return;
  loop_.unwatch(socket_.get());
  on_closed_(std::move(why));
}

void ControlChannel::on_socket(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) write();
  if (!closed_ && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read();
}

void ControlChannel::read() {
  std::array<char, kReadSize> buffer;
  // Reading stops behind bytes that bring descriptors, and a record brings one.
  auto got = read_with_fd(socket_.get(), buffer);
  if (!got) {
    if (got.error().sys_errno == EAGAIN) return;
    return close(std::unexpected(std::move(got).error()));
  }
  if (got->bytes == 0) return close({});
  if (got->fd.valid()) descriptors_.push_back(std::move(got->fd));
  if (!got->whole || descriptors_.size() > kMaxDescriptors)
    return close(fail(ErrorCode::kIntegrity, "A control record brings too many descriptors"));
  in_.append(buffer.data(), got->bytes);
  if (!take_records()) close(fail(ErrorCode::kIntegrity, "A control record has an impossible length"));
  if (!closed_) watch_again();
}

bool ControlChannel::take_records() {
  std::size_t at = 0;
  while (!closed_ && in_.size() - at >= kLength) {
    ByteReader head(std::string_view(in_).substr(at));
    const std::size_t length = head.number<std::uint32_t>();
    if (length < kId || length > kMaxControlRecord) return false;
    if (in_.size() - at < kLength + length) break;
    const auto id = head.number<std::uint32_t>();
    on_record_(id, head.rest().first(length - kId));
    at += kLength + length;
  }
  in_.erase(0, at);
  return true;
}

UniqueFd ControlChannel::take_descriptor() {
  if (descriptors_.empty()) return {};
  UniqueFd first = std::move(descriptors_.front());
  descriptors_.pop_front();
  return first;
}

void ControlChannel::send(std::uint32_t id, std::string_view payload) {
  if (closed_) return;
  out_ += ByteWriter().number(static_cast<std::uint32_t>(kId + payload.size())).number(id).take();
  out_ += payload;
  write();
}

void ControlChannel::write() {
  while (!out_.empty()) {
    const ssize_t count = ::send(socket_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      out_.erase(0, static_cast<std::size_t>(count));
      continue;
    }
    if (errno == EINTR) continue;
    // Whatever else is wrong shows when it is read.
    break;
  }
  watch_again();
}

void ControlChannel::watch_again() {
  std::uint32_t wanted = out_.size() > kMaxControlRecord ? 0U : EPOLLIN;
  if (!out_.empty()) wanted |= EPOLLOUT;
  if (std::exchange(events_, wanted) != wanted) (void)loop_.modify(socket_.get(), wanted);
}

}  // namespace drupe::net
