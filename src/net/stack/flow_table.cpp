#include "net/stack/flow_table.h"

#include <algorithm>

namespace drupe::net {
namespace {

constexpr std::uint32_t kMagic = 0x4f4c4644;  // "DFLO"
constexpr std::uint16_t kVersion = 1;

void append(ByteWriter& writer, const PacketAddress& address) {
  for (const std::uint8_t byte : address.view()) writer.number(byte);
}

PacketAddress read_address(ByteReader& reader, bool v6) {
  PacketAddress address;
  address.v6 = v6;
  for (std::size_t i = 0; i < address.size(); ++i) address.bytes[i] = reader.number<std::uint8_t>();
  return address;
}

}  // namespace

std::string encode_flow_table(const FlowTable& table) {
  const std::size_t count = std::min(table.size(), kMaxFlowRecords);
  ByteWriter writer;
  writer.number(kMagic).number(kVersion).number(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    const FlowRecord& record = table[i];
    writer.number<std::uint8_t>(record.key.guest.v6 ? 6 : 4);
    append(writer, record.key.guest);
    append(writer, record.key.remote);
    writer.number(record.key.guest_port).number(record.key.remote_port);
    writer.number(record.send_una).number(record.send_max).number(record.receive_next);
  }
  return writer.take();
}

Result<FlowTable> decode_flow_table(ByteView bytes) {
  ByteReader reader(bytes);
  const auto magic = reader.number<std::uint32_t>();
  const auto version = reader.number<std::uint16_t>();
  const auto count = reader.number<std::uint32_t>();
  if (!reader.ok() || magic != kMagic) return fail(ErrorCode::kIntegrity, "This is no table of connections");
  if (version != kVersion)
    return fail(ErrorCode::kUnsupported, "The table of connections has version " + std::to_string(version));
  if (count > kMaxFlowRecords) return fail(ErrorCode::kLimit, "The table of connections is too long");
  FlowTable table;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto family = reader.number<std::uint8_t>();
    if (!reader.ok() || (family != 4 && family != 6))
      return fail(ErrorCode::kIntegrity, "The table of connections is malformed");
    FlowRecord record;
    record.key.guest = read_address(reader, family == 6);
    record.key.remote = read_address(reader, family == 6);
    record.key.guest_port = reader.number<std::uint16_t>();
    record.key.remote_port = reader.number<std::uint16_t>();
    record.send_una = reader.number<std::uint32_t>();
    record.send_max = reader.number<std::uint32_t>();
    record.receive_next = reader.number<std::uint32_t>();
    table.push_back(record);
  }
  if (!reader.done()) return fail(ErrorCode::kIntegrity, "The table of connections is malformed");
  return table;
}

}  // namespace drupe::net
