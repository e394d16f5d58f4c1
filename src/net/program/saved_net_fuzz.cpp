// Any bytes: no crash, and what is accepted is written back as it was.
#include <cstdlib>

#include "net/program/saved_net.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const drupe::ByteView bytes(data, size);
  const auto saved = drupe::net::decode_saved_net(bytes);
  if (saved && drupe::net::encode_saved_net(*saved) != drupe::as_text(bytes)) std::abort();
  return 0;
}
