// Any bytes: no crash, and what is accepted is written back as it was.
#include <cstdlib>

#include "net/stack/flow_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const drupe::ByteView bytes(data, size);
  const auto table = drupe::net::decode_flow_table(bytes);
  if (table && drupe::net::encode_flow_table(*table) != drupe::as_text(bytes)) std::abort();
  return 0;
}
