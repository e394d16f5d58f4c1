// The guest's NIC as a datagram socket: one Ethernet frame in each datagram, as qemu's `-netdev dgram` has
// it, without a virtio-net header.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "base/unique_fd.h"
#include "net/stack/output.h"

namespace drupe::net {

/// Owns the socket and the buffers of one batch. One thread.
class Link final : public FrameSink {
 public:
  /// Makes `socket` (AF_UNIX, SOCK_DGRAM) non-blocking and asks for large kernel buffers.
  static Result<Link> adopt(UniqueFd socket, std::size_t mtu);

  [[nodiscard]] int fd() const { return socket_.get(); }
  /// Reads one batch, at most 32 frames and a quarter of a MiB, and calls `on_frame` for each; frames are
  /// valid during the call. Returns how many came; 0: none are there. Frames longer than the MTU come cut
  /// off, one byte too long, so that the stack counts them as giants. The error kCancelled: the other end is
  /// closed.
  Result<std::size_t> receive(const std::function<void(ByteView)>& on_frame);
  std::size_t send(std::span<const OutFrame> frames) override;
  /// The other end is gone; frames for it are thrown away.
  [[nodiscard]] bool broken() const { return broken_; }
  /// Gives the buffers' pages back to the system; for a link that is idle.
  void trim();

 private:
  struct Unmap {
    std::size_t size = 0;
    void operator()(std::uint8_t* pages) const;
  };
  Link(UniqueFd socket, std::size_t frame_size, std::unique_ptr<std::uint8_t, Unmap> buffers)
      : socket_(std::move(socket)), frame_size_(frame_size), buffers_(std::move(buffers)) {}

  UniqueFd socket_;
  std::size_t frame_size_;  // room for each frame of a batch
  std::unique_ptr<std::uint8_t, Unmap> buffers_;
  bool broken_ = false;
};

}  // namespace drupe::net
