// Replies of a hypervisor that its guest has taken over.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "hypervisor/qemu/qmp_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto message = drupe::parse_qmp(std::string_view(reinterpret_cast<const char*>(data), size));
  if (message && message->fields.size() > 256) std::abort();
  return 0;
}
