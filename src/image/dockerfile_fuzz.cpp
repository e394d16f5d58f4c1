// A Dockerfile of a stranger: read and planned.
#include <cstddef>
#include <cstdint>

#include "image/dockerfile.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = drupe::parse_dockerfile({reinterpret_cast<const char*>(data), size});
  if (!file) return 0;
  drupe::ImageConfig base;
  base.env = {"PATH=/bin"};
  static_cast<void>(drupe::plan_build(*file, base));
  return 0;
}
