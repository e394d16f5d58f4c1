#include "net/stack/packet_address.h"

#include <cstring>

#include <arpa/inet.h>

#include "net/stack/counters.h"

namespace drupe::net {
namespace {

// The finalizer of SplitMix64: every bit of the input moves every bit of the result.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

std::uint64_t word(const PacketAddress& address, std::size_t at) {
  std::uint64_t value = 0;
  std::memcpy(&value, address.bytes.data() + at, sizeof(value));
  return value;
}

}  // namespace

std::string to_string(const PacketAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(address.v6 ? AF_INET6 : AF_INET, address.bytes.data(), text, sizeof(text));
  return text;
}

PacketAddress link_local_of(const MacAddress& mac) {
  const auto& m = mac.bytes;
  PacketAddress address;
  address.v6 = true;
  address.bytes = {0xfe, 0x80, 0,    0,    0,    0,    0,   0, static_cast<std::uint8_t>(m[0] ^ 2),
                   m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]};
  return address;
}

std::size_t FlowKeyHash::operator()(const FlowKey& key) const {
  std::uint64_t hash = mix(secret ^ (std::uint64_t{key.guest_port} << 16 | key.remote_port));
  hash = mix(hash ^ word(key.remote, 0));
  hash = mix((hash + secret) ^ word(key.guest, 0));
  if (key.remote.v6) hash = mix(mix(hash ^ word(key.remote, 8)) ^ word(key.guest, 8)) + 1;
  return hash;
}

const char* to_string(DropReason reason) {
  static constexpr std::array<const char*, kDropReasons> kNames = {
      "runt",         "giant",      "not_for_us",   "forged_mac",  "forged_address",
      "unknown_type", "bad_header", "bad_checksum", "fragment",    "bad_destination",
      "ignored",      "table_full", "queue_full",   "bad_sequence"};
  return kNames[static_cast<std::size_t>(reason)];
}

}  // namespace drupe::net
