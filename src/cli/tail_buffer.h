// Keeps the last bytes of a stream, within a bound.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace drupe::cli {

/// Holds at most twice `limit` bytes of memory. The end is what is kept: that is where errors are.
class TailBuffer {
 public:
  explicit TailBuffer(std::size_t limit) : limit_(limit) {}
  void append(std::string_view bytes);
  [[nodiscard]] bool truncated() const { return truncated_; }
  /// The kept bytes. When some were dropped and the rest was UTF-8 cut inside a character, that character's
  /// rest is dropped too.
  [[nodiscard]] std::string take();

 private:
  std::size_t limit_;
  std::string bytes_;
  bool truncated_ = false;
};

}  // namespace drupe::cli
