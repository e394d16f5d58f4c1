#include "net/world/socket_address.h"

#include <cerrno>
#include <cstring>

#include <netinet/in.h>
#include <netinet/tcp.h>

namespace drupe::net {

SocketAddress socket_address(const PacketAddress& address, std::uint16_t port) {
  SocketAddress made;
  if (address.v6) {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    std::memcpy(&six.sin6_addr, address.bytes.data(), 16);
    std::memcpy(&made.storage, &six, sizeof(six));
    made.size = sizeof(six);
  } else {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    std::memcpy(&four.sin_addr, address.bytes.data(), 4);
    std::memcpy(&made.storage, &four, sizeof(four));
    made.size = sizeof(four);
  }
  return made;
}

StartedConnect start_connect(const PacketAddress& address, std::uint16_t port, int type) {
  StartedConnect started;
  started.socket =
      UniqueFd(::socket(address.v6 ? AF_INET6 : AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!started.socket.valid()) {
    started.error = errno;
    return started;
  }
  if (type == SOCK_STREAM) {
    // The guest's kernel decided when to send; nothing is gained by waiting once more.
    const int on = 1;
    ::setsockopt(started.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  const SocketAddress to = socket_address(address, port);
  if (::connect(started.socket.get(), to.get(), to.size) != 0) started.error = errno;
  return started;
}

int take_socket_error(int socket) {
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

Unreachable unreachable_for(int error) {
  switch (error) {
    case ENETUNREACH:
    case EAFNOSUPPORT:
    case EADDRNOTAVAIL:
      return Unreachable::kNetwork;
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ETIMEDOUT:
      return Unreachable::kHost;
    case EACCES:
    case EPERM:
      return Unreachable::kProhibited;
    default:
      return Unreachable::kPort;
  }
}

}  // namespace drupe::net
