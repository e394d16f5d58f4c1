// Messages with descriptors over local sockets.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe {

/// Fewer than the kernel allows (253), more than any message here has.
inline constexpr std::size_t kMaxPassedFds = 128;

/// Sends `bytes` (at least one) with copies of `fds`, without waiting; how many bytes went.
Result<std::size_t> send_with_fds(int socket, std::string_view bytes, std::span<const int> fds);

struct FdMessage {
  std::string bytes;  ///< Empty: the other side has closed.
  std::vector<UniqueFd> fds;
};
/// Receives one message of a SOCK_SEQPACKET socket, waiting if the socket does. A message longer than `limit`
/// is kIntegrity.
Result<FdMessage> receive_with_fds(int socket, std::size_t limit);

/// What one read of a local socket gave.
struct FdRead {
  std::size_t bytes = 0;  ///< 0: the other side has closed.
  UniqueFd fd;            ///< May be invalid.
  bool whole =
      false;  ///< False: there were more bytes in the message, or more descriptors, and they are gone.
};
/// Reads into `into` with at most one descriptor, without waiting. The error's sys_errno is EAGAIN when
/// nothing is there.
Result<FdRead> read_with_fd(int socket, std::span<char> into);

}  // namespace drupe
