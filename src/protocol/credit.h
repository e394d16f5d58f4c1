// Windows of one channel of a stream: how much its sender may have in flight, and when its receiver grants
// more.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "protocol/frame.h"

namespace drupe {

/// Most that a receiver may have granted and not yet got; a larger grant is a hostile peer.
inline constexpr std::uint32_t kMaxCredit = 16 * 1024 * 1024;

/// The sender's side of a channel.
class CreditSender {
 public:
  /// Payload bytes that may be sent now.
  [[nodiscard]] std::size_t may_send() const { return available_; }
  /// `bytes` were sent. Precondition: bytes <= may_send().
  void consumed(std::size_t bytes) { available_ -= static_cast<std::uint32_t>(bytes); }
  /// A kCredit frame came.
  Status grant(std::uint32_t bytes) {
    if (bytes > kMaxCredit - available_)
      return fail(ErrorCode::kIntegrity, "More credit was granted than the protocol allows");
    available_ += bytes;
    return {};
  }

 private:
  std::uint32_t available_ = kInitialCredit;
};

/// The receiver's side of a channel. Grants come in steps of half the window, so few frames carry them.
class CreditReceiver {
 public:
  /// `bytes` of payload came; an error when they were not granted.
  Status received(std::size_t bytes) {
    if (bytes > granted_) return fail(ErrorCode::kIntegrity, "More data was sent than was granted");
    granted_ -= static_cast<std::uint32_t>(bytes);
    return {};
  }
  /// `bytes` were passed on and their room is free. Returns what to grant now in a kCredit frame; 0: nothing
  /// yet.
  [[nodiscard]] std::uint32_t consumed(std::size_t bytes) {
    free_ += static_cast<std::uint32_t>(bytes);
    if (free_ < kInitialCredit / 2) return 0;
    const std::uint32_t grant = free_;
    granted_ += grant;
    free_ = 0;
    return grant;
  }

 private:
  std::uint32_t granted_ = kInitialCredit;
  std::uint32_t free_ = 0;
};

}  // namespace drupe
