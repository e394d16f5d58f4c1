// Records, specifications and the shim's messages from any bytes: an error or a value that encodes to itself
// again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "shim/messages.h"
#include "shim/record.h"
#include "shim/spec.h"

namespace {

template <class T>
void round_trip(drupe::ByteView bytes) {
  if (const auto value = T::decode(bytes); value && !T::decode(drupe::as_bytes(value->encode())))
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const drupe::ByteView bytes(data, size);
  const std::string_view text = drupe::as_text(bytes);
  if (const auto record = drupe::decode_record(text)) {
    const std::string once = drupe::encode_record(*record);
    const auto again = drupe::decode_record(once);
    if (!again || drupe::encode_record(*again) != once) std::abort();
  }
  (void)drupe::decode_extents(text, 1ULL << 32);
  (void)drupe::ShimSpec::decode(text);
  (void)drupe::ShimStatus::decode(text);
  (void)drupe::decode_reset(bytes);
  round_trip<drupe::SnapshotRequest>(bytes);
  round_trip<drupe::SnapshotReply>(bytes);
  round_trip<drupe::StopRequest>(bytes);
  round_trip<drupe::UpdateRequest>(bytes);
  round_trip<drupe::ClaimRequest>(bytes);
  round_trip<drupe::WaitReply>(bytes);
  round_trip<drupe::ShimInfo>(bytes);
  return 0;
}
