// Loads and stores in network byte order (RFC 1700: most significant byte first).
#pragma once

#include <cstdint>
#include <cstring>
#include <expected>

#include "base/bytes.h"
#include "net/stack/counters.h"

namespace drupe::net {

/// A parsed header, or why the frame is thrown away.
template <class T>
using Parsed = std::expected<T, DropReason>;

[[nodiscard]] inline std::uint16_t load16(const std::uint8_t* at) {
  return static_cast<std::uint16_t>(at[0] << 8 | at[1]);
}
[[nodiscard]] inline std::uint32_t load32(const std::uint8_t* at) {
  return std::uint32_t{load16(at)} << 16 | load16(at + 2);
}
inline void store16(std::uint8_t* at, std::uint16_t value) {
  at[0] = static_cast<std::uint8_t>(value >> 8);
  at[1] = static_cast<std::uint8_t>(value);
}
inline void store32(std::uint8_t* at, std::uint32_t value) {
  store16(at, static_cast<std::uint16_t>(value >> 16));
  store16(at + 2, static_cast<std::uint16_t>(value));
}

}  // namespace drupe::net
