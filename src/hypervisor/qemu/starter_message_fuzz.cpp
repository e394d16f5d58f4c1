// Requests of a shim that its guest has taken over.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <fcntl.h>

#include "hypervisor/qemu/starter_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  drupe::FdMessage message;
  for (int i = 0; i < data[0] % 8; ++i) message.fds.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  message.bytes.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto spec = drupe::decode_start(std::move(message));
  if (spec && spec->disk.size() > 8) std::abort();
  return 0;
}
