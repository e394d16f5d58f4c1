#include "net/stack/link.h"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

namespace drupe::net {
namespace {

constexpr std::size_t kMaxBatch = 32;
constexpr std::size_t kBatchBytes = 256 * kKiB;
constexpr std::size_t kPage = 4096;
constexpr int kSocketBuffer = 1024 * 1024;  // asked for; the system's bound applies

std::size_t batch_of(std::size_t frame_size) {
  return std::clamp<std::size_t>(kBatchBytes / frame_size, 2, kMaxBatch);
}

}  // namespace

void Link::Unmap::operator()(std::uint8_t* pages) const {
  ::munmap(pages, size);
}

Result<Link> Link::adopt(UniqueFd socket, std::size_t mtu) {
  const int flags = ::fcntl(socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return fail_sys("Setting up the link to the guest failed", errno);
  int type = 0;
  socklen_t size = sizeof(type);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_DGRAM)
    return fail(ErrorCode::kInvalidArgument, "The link to the guest must be a datagram socket");
  for (const int option : {SO_SNDBUF, SO_RCVBUF})
    ::setsockopt(socket.get(), SOL_SOCKET, option, &kSocketBuffer, sizeof(kSocketBuffer));
  // One byte more than the largest frame tells a giant from it.
  const std::size_t frame_size = (mtu + kEthernetHeader + 1 + kPage - 1) / kPage * kPage;
  const std::size_t bytes = frame_size * batch_of(frame_size);
  void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return fail_sys("Getting memory for frames failed", errno);
  return Link(std::move(socket), frame_size,
              std::unique_ptr<std::uint8_t, Unmap>(static_cast<std::uint8_t*>(pages), Unmap{bytes}));
}

Result<std::size_t> Link::receive(const std::function<void(ByteView)>& on_frame) {
  const std::size_t batch = batch_of(frame_size_);
  std::array<iovec, kMaxBatch> pieces;
  std::array<mmsghdr, kMaxBatch> messages{};
  for (std::size_t i = 0; i < batch; ++i) {
    pieces[i] = {buffers_.get() + i * frame_size_, frame_size_};
    messages[i].msg_hdr.msg_iov = &pieces[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const int count =
      ::recvmmsg(socket_.get(), messages.data(), static_cast<unsigned>(batch), MSG_DONTWAIT, nullptr);
  if (count < 0) {
    if (errno == EAGAIN || errno == EINTR) return std::size_t{0};
    broken_ = true;
    if (errno == ECONNRESET) return fail(ErrorCode::kCancelled, "The link to the guest is closed");
    return fail_sys("Reading from the link to the guest failed", errno);
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    on_frame(ByteView(buffers_.get() + i * frame_size_, messages[i].msg_len));
  return static_cast<std::size_t>(count);
}

std::size_t Link::send(std::span<const OutFrame> frames) {
  if (broken_) return frames.size();
  std::array<std::array<iovec, 3>, kMaxBatch> pieces;
  std::array<mmsghdr, kMaxBatch> messages{};
  const std::size_t batch = std::min(frames.size(), kMaxBatch);
  for (std::size_t i = 0; i < batch; ++i) {
    std::size_t used = 0;
    for (const ByteView piece : frames[i].pieces)
      if (!piece.empty()) pieces[i][used++] = {const_cast<std::uint8_t*>(piece.data()), piece.size()};
    messages[i].msg_hdr.msg_iov = pieces[i].data();
    messages[i].msg_hdr.msg_iovlen = used;
  }
  const int count =
      ::sendmmsg(socket_.get(), messages.data(), static_cast<unsigned>(batch), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count >= 0) return static_cast<std::size_t>(count);
  // ENOBUFS: the kernel has no memory now; as with a full socket, the frame is kept.
  if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM || errno == EINTR) return 0;
  if (errno == EMSGSIZE) return 1;  // larger than the socket's buffer: it will never fit
  broken_ = true;
  return frames.size();
}

void Link::trim() {
  ::madvise(buffers_.get(), buffers_.get_deleter().size, MADV_DONTNEED);
}

}  // namespace drupe::net
