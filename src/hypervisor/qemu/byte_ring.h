// The last bytes of an endless stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace drupe {

class ByteRing {
 public:
  explicit ByteRing(std::size_t capacity) : capacity_(capacity) {}

  void append(std::string_view bytes) {
    if (bytes.size() > capacity_) bytes.remove_prefix(bytes.size() - capacity_);
    const std::size_t room = capacity_ - bytes_.size();
    const std::size_t fresh = std::min(room, bytes.size());
    bytes_.append(bytes.substr(0, fresh));
    for (const char c : bytes.substr(fresh)) {
      bytes_[start_] = c;
      start_ = (start_ + 1) % capacity_;
    }
  }
  /// Oldest byte first.
  [[nodiscard]] std::string text() const { return bytes_.substr(start_) + bytes_.substr(0, start_); }

 private:
  std::size_t capacity_;
  std::string bytes_;
  std::size_t start_ = 0;  ///< Moves only once the ring is full.
};

}  // namespace drupe
