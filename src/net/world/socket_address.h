// Addresses as the host's sockets want them.
#pragma once

#include <cstdint>

#include <sys/socket.h>

#include "base/result.h"
#include "base/unique_fd.h"
#include "net/stack/tcp_types.h"

namespace drupe::net {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
[[nodiscard]] SocketAddress socket_address(const PacketAddress& address, std::uint16_t port);

struct StartedConnect {
  UniqueFd socket;
  int error = 0;  ///< errno; EINPROGRESS while it goes on.
};
/// A non-blocking socket that connects; `type` is SOCK_STREAM or SOCK_DGRAM.
[[nodiscard]] StartedConnect start_connect(const PacketAddress& address, std::uint16_t port, int type);

/// The pending error of a socket (SO_ERROR), which is cleared.
[[nodiscard]] int take_socket_error(int socket);
/// What a guest is told for an errno of connect(); kPort stands for a refusal.
[[nodiscard]] Unreachable unreachable_for(int error);

}  // namespace drupe::net
