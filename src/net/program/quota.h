// How many bytes a sandbox may still carry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace drupe::net {

/// Payload of both directions. One thread.
class Quota {
 public:
  /// `limit` 0: none.
  void set(std::uint64_t limit) { limit_ = limit; }
  void use(std::uint64_t bytes) {
    const std::uint64_t left = std::numeric_limits<std::uint64_t>::max() - used_;
    used_ += bytes < left ? bytes : left;
  }
  [[nodiscard]] bool spent() const { return limit_ != 0 && used_ >= limit_; }
  [[nodiscard]] std::uint64_t limit() const { return limit_; }
  [[nodiscard]] std::uint64_t used() const { return used_; }

 private:
  std::uint64_t limit_ = 0, used_ = 0;
};

}  // namespace drupe::net
