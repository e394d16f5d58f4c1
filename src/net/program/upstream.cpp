#include "net/program/upstream.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "net/world/socket_address.h"

namespace drupe::net {
namespace {

constexpr std::size_t kLargestMessage = 65535;
constexpr int kDatagramsPerTurn = 32;

}  // namespace

Upstream::Upstream(EventLoop& loop, std::vector<Endpoint> servers, OnAnswer on_answer, OnFailed on_failed)
    : loop_(loop),
      servers_(std::move(servers)),
      on_answer_(std::move(on_answer)),
      on_failed_(std::move(on_failed)) {}

Upstream::~Upstream() {
  *alive_ = false;
  for (const auto& [token, sockets] : sockets_)
    for (const auto& socket : sockets) loop_.unwatch(socket->fd.get());
}

std::size_t Upstream::sockets() const {
  std::size_t count = 0;
  for (const auto& [token, sockets] : sockets_) count += sockets.size();
  return count;
}

Upstream::Socket* Upstream::find(std::uint64_t token, int fd) {
  const auto found = sockets_.find(token);
  if (found == sockets_.end()) return nullptr;
  const auto socket =
      std::ranges::find_if(found->second, [fd](const auto& one) { return one->fd.get() == fd; });
  return socket == found->second.end() ? nullptr : socket->get();
}

void Upstream::close(std::uint64_t token) {
  latest_.erase(token);
  const auto found = sockets_.find(token);
  if (found == sockets_.end()) return;
  for (const auto& socket : found->second) loop_.unwatch(socket->fd.get());
  sockets_.erase(found);
}

void Upstream::send(const dns::Forward& forward) {
  latest_[forward.token] = forward.attempt;
  auto socket = std::make_unique<Socket>();
  socket->attempt = forward.attempt;
  socket->transport = forward.transport;
  const bool room = !servers_.empty() && sockets() < kMaxSockets;
  if (!room || open(*socket, servers_[forward.attempt % servers_.size()], forward.message) != 0)
    return report_failure(forward.token, forward.attempt);
  const int fd = socket->fd.get();
  const std::uint32_t events = socket->unsent.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
  const auto watched = loop_.watch(
      fd, events, [this, token = forward.token, fd](std::uint32_t ready) { on_socket(token, fd, ready); });
  if (!watched) return report_failure(forward.token, forward.attempt);
  sockets_[forward.token].push_back(std::move(socket));
}

// 0, or an errno.
int Upstream::open(Socket& socket, const Endpoint& server, const std::string& message) {
  const bool tcp = socket.transport == dns::Transport::kTcp;
  auto started = start_connect(server.address, server.port, tcp ? SOCK_STREAM : SOCK_DGRAM);
  if (started.error != 0 && started.error != EINPROGRESS) return started.error;
  socket.fd = std::move(started.socket);
  if (tcp) {
    socket.unsent = dns::tcp_frame(message);
    return 0;
  }
  const ssize_t sent = ::send(socket.fd.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent < 0 ? errno : 0;
}

// Later, so that nobody is called from within its own call.
void Upstream::report_failure(std::uint64_t token, unsigned attempt) {
  loop_.defer([this, alive = alive_, token, attempt] {
    if (!*alive) return;
    const auto latest = latest_.find(token);
    if (latest != latest_.end() && latest->second == attempt) on_failed_(token);
  });
}

void Upstream::failed(std::uint64_t token, int fd) {
  Sockets& sockets = sockets_[token];
  const auto socket = std::ranges::find_if(sockets, [fd](const auto& one) { return one->fd.get() == fd; });
  const unsigned attempt = (*socket)->attempt;
  loop_.unwatch(fd);
  sockets.erase(socket);
  if (sockets.empty()) sockets_.erase(token);
  report_failure(token, attempt);
}

void Upstream::on_socket(std::uint64_t token, int fd, std::uint32_t events) {
  Socket* socket = find(token, fd);
  if (socket == nullptr) return;
  if (socket->transport == dns::Transport::kUdp) return read_udp(token, fd);
  if ((events & EPOLLOUT) != 0 && write(*socket) != 0) return failed(token, fd);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read_tcp(token, fd);
}

// 0, or an errno.
int Upstream::write(Socket& socket) {
  const ssize_t sent =
      ::send(socket.fd.get(), socket.unsent.data(), socket.unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR ? 0 : errno;
  socket.unsent.erase(0, static_cast<std::size_t>(sent));
  if (socket.unsent.empty()) (void)loop_.modify(socket.fd.get(), EPOLLIN);
  return 0;
}

void Upstream::read_udp(std::uint64_t token, int fd) {
  std::array<std::uint8_t, kLargestMessage> buffer;
  for (int i = 0; i < kDatagramsPerTurn && find(token, fd) != nullptr; ++i) {
    const ssize_t size = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0) {
      if (errno != EAGAIN && errno != EINTR) failed(token, fd);
      return;
    }
    on_answer_(token, dns::Transport::kUdp, ByteView(buffer).first(static_cast<std::size_t>(size)));
  }
}

void Upstream::read_tcp(std::uint64_t token, int fd) {
  std::array<std::uint8_t, kLargestMessage> buffer;
  const ssize_t size = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return failed(token, fd);
  find(token, fd)->framing.feed(ByteView(buffer).first(static_cast<std::size_t>(size)));
  while (Socket* socket = find(token, fd)) {
    const auto message = socket->framing.next();
    if (!message) return;
    on_answer_(token, dns::Transport::kTcp, as_bytes(*message));
  }
}

}  // namespace drupe::net
