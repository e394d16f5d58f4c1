// The Internet checksum (RFC 1071).
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "net/stack/packet_address.h"

namespace drupe::net {

/// Sums pieces as if they were one run of bytes; a piece may have any length.
class InternetChecksum {
 public:
  InternetChecksum& add(ByteView bytes);
  InternetChecksum& add16(std::uint16_t value);
  /// The pseudo header of UDP, TCP (RFC 9293 3.1) and ICMPv6 (RFC 8200 8.1).
  InternetChecksum& add_pseudo_header(const PacketAddress& source, const PacketAddress& destination,
                                      std::uint8_t protocol, std::size_t length);
  /// The value of a checksum field that was zero while summing. Over bytes that hold a right checksum: 0.
  [[nodiscard]] std::uint16_t finish() const;

 private:
  std::uint64_t sum_ = 0;  // native byte order; RFC 1071 2(B): the sum does not depend on it
  bool odd_ = false;       // an odd number of bytes so far
};

}  // namespace drupe::net
