// DNS over TCP: each message behind its length (RFC 1035, 4.2.2).
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/bytes.h"

namespace drupe::net::dns {

/// Cuts one direction of a TCP connection into messages. Holds at most one incomplete message (64 KiB) beside
/// the bytes of the last feed().
class TcpFraming {
 public:
  void feed(ByteView bytes);
  /// The next whole message; nullopt until more is fed. A message of length 0 is given as empty.
  [[nodiscard]] std::optional<std::string> next();
  [[nodiscard]] std::size_t held() const { return held_.size() - begin_; }

 private:
  std::string held_;
  std::size_t begin_ = 0;
};

/// `message` behind its length; at most 65535 bytes.
[[nodiscard]] std::string tcp_frame(const std::string& message);

}  // namespace drupe::net::dns
