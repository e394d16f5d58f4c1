#include "base/pass_fds.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>

namespace drupe {
namespace {

struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxPassedFds * sizeof(int))> room{};
};

}  // namespace

Result<std::size_t> send_with_fds(int socket, std::string_view bytes, std::span<const int> fds) {
  if (fds.size() > kMaxPassedFds) return fail(ErrorCode::kHost, "Too many descriptors for one message");
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control;
  if (!fds.empty()) {
    message.msg_control = control.room.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t put = 0;
  do put = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (put < 0 && errno == EINTR);
  if (put < 0) return fail_sys("Sending a message failed", errno);
  return static_cast<std::size_t>(put);
}

Result<FdMessage> receive_with_fds(int socket, std::size_t limit) {
  FdMessage out;
  out.bytes.resize(limit);
  iovec part{out.bytes.data(), out.bytes.size()};
  Control control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.room.data();
  message.msg_controllen = control.room.size();
  ssize_t got = 0;
  do got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0) return fail_sys("Receiving a message failed", errno);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      out.fds.emplace_back(fd);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return fail(ErrorCode::kIntegrity, "A message is longer than it may be");
  out.bytes.resize(static_cast<std::size_t>(got));
  return out;
}

Result<FdRead> read_with_fd(int socket, std::span<char> into) {
  iovec part{into.data(), into.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  // With its padding there would be room for two; the kernel closes what more there is.
  message.msg_controllen = CMSG_LEN(sizeof(int));
  ssize_t got = 0;
  do got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0) return fail_sys("Receiving a message failed", errno);
  FdRead out;
  out.bytes = static_cast<std::size_t>(got);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len >= CMSG_LEN(sizeof(int))) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    out.fd = UniqueFd(fd);
  }
  out.whole = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  return out;
}

}  // namespace drupe
