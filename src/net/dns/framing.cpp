#include "net/dns/framing.h"

namespace drupe::net::dns {

void TcpFraming::feed(ByteView bytes) {
  held_.erase(0, begin_);
  begin_ = 0;
  held_ += as_text(bytes);
}

std::optional<std::string> TcpFraming::next() {
  if (held() < 2) return std::nullopt;
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(held_[at]));
  };
  const std::size_t size = byte(begin_) << 8 | byte(begin_ + 1);
  if (held() < size + 2) return std::nullopt;
  std::string message = held_.substr(begin_ + 2, size);
  begin_ += size + 2;
  return message;
}

std::string tcp_frame(const std::string& message) {
  const std::size_t size = message.size();
  std::string out{static_cast<char>(size >> 8 & 0xff), static_cast<char>(size & 0xff)};
  return out + message;
}

}  // namespace drupe::net::dns
