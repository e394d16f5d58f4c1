// A TCP connection to a port inside the guest, its two directions on descriptors 0 and 1.
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "agent/sys.h"
#include "agent/tasks.h"

namespace drupe::agent {
namespace {

constexpr std::size_t kChunk = 64 * 1024;

Result<UniqueFd> connect_to(int family, const sockaddr* address, socklen_t size, const std::string& what) {
  UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return fail_sys("Opening a socket failed", errno);
  if (::connect(socket.get(), address, size) != 0) {
    const int err = errno;
    return std::unexpected(Error{ErrorCode::kUnavailable,
                                 "Connecting to port " + what + " in the guest failed: " + std::strerror(err),
                                 "See whether the server in the sandbox is listening on it", err});
  }
  const int yes = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return socket;
}

/// IPv4 first, then IPv6: servers listen on either.
Result<UniqueFd> connect_local(std::uint16_t port) {
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string what = std::to_string(port);
  auto connected = connect_to(AF_INET, reinterpret_cast<const sockaddr*>(&four), sizeof four, what);
  if (connected || connected.error().sys_errno != ECONNREFUSED) return connected;
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  six.sin6_addr = in6addr_loopback;
  auto second = connect_to(AF_INET6, reinterpret_cast<const sockaddr*>(&six), sizeof six, what);
  return second ? std::move(second) : std::move(connected);
}

/// One direction: bytes that were read and not yet written, and whether the end was seen and passed on.
class Direction {
 public:
  Direction(int from, int to) : from_(from), to_(to), buffer_(new char[kChunk]) {}

  [[nodiscard]] bool wants_read() const { return !ended_ && begin_ == end_; }
  [[nodiscard]] bool wants_write() const { return begin_ != end_; }
  [[nodiscard]] bool ended() const { return ended_ && begin_ == end_; }
  [[nodiscard]] int from() const { return from_; }
  [[nodiscard]] int to() const { return to_; }

  void read_some() {
    const ssize_t got = ::read(from_, buffer_.get(), kChunk);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    begin_ = 0;
    end_ = got > 0 ? static_cast<std::size_t>(got) : 0;
    ended_ = got <= 0;
    if (got > 0) write_some();
  }
  void write_some() {
    const ssize_t put = ::write(to_, buffer_.get() + begin_, end_ - begin_);
    if (put < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (put > 0) begin_ += static_cast<std::size_t>(put);
    if (put > 0) return;
    begin_ = end_;
    ended_ = true;
  }

 private:
  int from_, to_;
  std::unique_ptr<char[]> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  bool ended_ = false;
};

/// Both directions in one thread; a peer that stops reading does not stop the other way. Over when the
/// guest's side has ended.
void relay(int socket) {
  Direction up(STDIN_FILENO, socket);
  Direction down(socket, STDOUT_FILENO);
  bool shut = false;
  while (!down.ended()) {
    if (up.ended() && !std::exchange(shut, true)) ::shutdown(socket, SHUT_WR);
    pollfd waiting[4] = {{up.wants_read() ? up.from() : -1, POLLIN, 0},
                         {up.wants_write() ? up.to() : -1, POLLOUT, 0},
                         {down.wants_read() ? down.from() : -1, POLLIN, 0},
                         {down.wants_write() ? down.to() : -1, POLLOUT, 0}};
    if (::poll(waiting, 4, -1) < 0 && errno != EINTR) return;
    if (waiting[0].revents != 0) up.read_some();
    if (waiting[1].revents != 0) up.write_some();
    if (waiting[2].revents != 0) down.read_some();
    if (waiting[3].revents != 0) down.write_some();
  }
}

}  // namespace

Result<std::string> tunnel_task(const FileOptions& options) {
  if (options.port == 0) return fail(ErrorCode::kInvalidArgument, "A tunnel needs a port from 1 to 65535");
  DRUPE_ASSIGN(const UniqueFd socket, connect_local(options.port));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, socket.get()}) DRUPE_TRY(set_nonblocking(fd));
  relay(socket.get());
  return std::string();
}

}  // namespace drupe::agent
