#include "cli/tail_buffer.h"

namespace drupe::cli {

void TailBuffer::append(std::string_view bytes) {
  if (bytes.size() > limit_) {
    bytes.remove_prefix(bytes.size() - limit_);
    truncated_ = true;
  }
  bytes_.append(bytes);
  // Cutting only now and then makes the cost of a byte constant.
  if (bytes_.size() >= 2 * limit_ && bytes_.size() > limit_) {
    bytes_.erase(0, bytes_.size() - limit_);
    truncated_ = true;
  }
}

std::string TailBuffer::take() {
  if (bytes_.size() > limit_) {
    bytes_.erase(0, bytes_.size() - limit_);
    truncated_ = true;
  }
  if (truncated_) {
    std::size_t rest = 0;
    while (rest < 3 && rest < bytes_.size() && (bytes_[rest] & 0xC0) == 0x80) ++rest;
    bytes_.erase(0, rest);
  }
  return std::move(bytes_);
}

}  // namespace drupe::cli
