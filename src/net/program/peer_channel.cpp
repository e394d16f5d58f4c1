#include "net/program/peer_channel.h"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/pass_fds.h"

namespace drupe::net {
namespace {

int option_of(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

}  // namespace

bool is_peer_stream(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  return option_of(fd, SO_DOMAIN) == AF_UNIX && option_of(fd, SO_TYPE) == SOCK_STREAM &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

PeerChannel::PeerChannel(EventLoop& loop, UniqueFd socket, OnPacket on_packet, OnClosed on_closed)
    : loop_(loop),
      socket_(std::move(socket)),
      on_packet_(std::move(on_packet)),
      on_closed_(std::move(on_closed)) {}

PeerChannel::~PeerChannel() {
  abandon();
}

void PeerChannel::abandon() {
  *alive_ = false;
  if (!closed_) shut();
}

Status PeerChannel::start() {
  if (option_of(socket_.get(), SO_DOMAIN) != AF_UNIX || option_of(socket_.get(), SO_TYPE) != SOCK_SEQPACKET)
    return fail(ErrorCode::kInvalidArgument, "A channel to another sandbox is no local socket of packets");
  return loop_.watch(socket_.get(), EPOLLIN, [this](std::uint32_t events) { on_socket(events); });
}

void PeerChannel::shut() {
  closed_ = true;
  loop_.unwatch(socket_.get());
  socket_.reset();
  out_.clear();
}

void PeerChannel::close() {
  if (closed_) return;
  shut();
  loop_.defer([this, alive = alive_] {
    if (*alive) on_closed_();
  });
}

void PeerChannel::on_socket(std::uint32_t events) {
  const auto alive = alive_;
  if ((events & EPOLLOUT) != 0) write();
  for (int i = 0; i < kPacketsPerTurn && read_one(); ++i)
    if (!*alive) return;
}

void PeerChannel::drain() {
  const auto alive = alive_;
  for (int i = 0; i < kMaxDrained && read_one(); ++i)
    if (!*alive) return;
}

bool PeerChannel::read_one() {
  if (closed_) return false;
  buffer_.resize(kMaxPeerMessage);
  auto got = read_with_fd(socket_.get(), buffer_);
  if (!got) {
    if (got.error().sys_errno != EAGAIN) close();
    return false;
  }
  const auto alive = alive_;
  // Its own copy: reading goes on from within when a flow's end is looked into.
  const std::string bytes(buffer_.data(), got->bytes);
  const bool good = got->bytes > 0 && got->whole && on_packet_(as_bytes(bytes), std::move(got->fd));
  if (!*alive) return false;
  if (!good) close();
  return good;
}

void PeerChannel::send(const PeerMessage& message, UniqueFd pass, UniqueFd then_shut) {
  if (closed_) return;
  if (out_.size() >= kMaxQueued) return close();
  out_.push_back({message.encode(), std::move(pass), std::move(then_shut)});
  write();
}

void PeerChannel::send_datagram(const PeerMessage& message) {
  if (closed_ || !out_.empty()) return;
  const std::string bytes = message.encode();
  (void)send_with_fds(socket_.get(), bytes, {});
}

void PeerChannel::write() {
  while (!closed_ && !out_.empty()) {
    const Queued& next = out_.front();
    const int fd = next.pass.get();
    const auto sent = send_with_fds(
        socket_.get(), next.bytes, next.pass.valid() ? std::span<const int>(&fd, 1) : std::span<const int>());
    if (!sent && sent.error().sys_errno != EAGAIN) return close();
    if (!sent) break;
    if (next.then_shut.valid()) ::shutdown(next.then_shut.get(), SHUT_WR);
    out_.pop_front();
  }
  if (!closed_) (void)loop_.modify(socket_.get(), out_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

}  // namespace drupe::net
