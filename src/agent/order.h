// What a ready child is told: the command, and the defaults of the moment it is used.
#pragma once

#include <cstddef>
#include <string>

#include "agent/launch.h"
#include "protocol/messages.h"

namespace drupe::agent {

/// Longest encoded order with its length in front. An empty pipe takes it in one write() that does not block
/// (16 pages, pipe(7)).
inline constexpr std::size_t kMaxOrder = std::size_t{64} * 1024;

struct Order {
  ExecOptions options;
  Defaults defaults;
  /// u32 length of the rest, then the rest.
  [[nodiscard]] static std::string encode(const ExecOptions& options, const Defaults& defaults);
  /// From the rest, without the length.
  static Result<Order> decode(ByteView bytes);
};

}  // namespace drupe::agent
