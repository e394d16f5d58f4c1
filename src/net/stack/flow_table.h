// The TCP connections of one moment, as a value: what a forked or resumed guest must be told are gone.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "net/stack/packet_address.h"

namespace drupe::net {

struct FlowRecord {
  FlowKey key;
  std::uint32_t send_una = 0;  ///< First byte of ours that the guest had not acknowledged.
  std::uint32_t send_max = 0;  ///< Behind the last byte that was sent.
  std::uint32_t receive_next = 0;
  friend bool operator==(const FlowRecord&, const FlowRecord&) = default;
};

using FlowTable = std::vector<FlowRecord>;

/// More records are refused by decode() and left out by encode().
inline constexpr std::size_t kMaxFlowRecords = 65536;

/// Little-endian: u32 magic "DFLO", u16 version 1, u32 count; then for each u8 family (4, 6), guest address,
/// remote address (4 or 16 bytes each), u16 guest port, u16 remote port, u32 send_una, u32 send_max, u32
/// receive_next.
[[nodiscard]] std::string encode_flow_table(const FlowTable& table);
/// Takes hostile bytes.
Result<FlowTable> decode_flow_table(ByteView bytes);

}  // namespace drupe::net
