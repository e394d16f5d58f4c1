// Any bytes, in any pieces: no crash, and what comes out keeps the promises of TarDecoder::Events.
#include <cstdlib>

#include "base/tar_decode.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t step = 1 + (data[0] | std::size_t{data[1]} << 8) % 2000;
  drupe::ByteView rest(data + 2, size - 2);
  std::uint64_t file_size = 0;
  bool open = false;
  drupe::TarDecoder decoder({[&](const drupe::TarEntry& entry) -> drupe::Status {
                               if (open) std::abort();
                               open = true;
                               file_size = entry.size;
                               std::uint64_t at = 0;
                               for (const auto& extent : entry.extents) {
                                 if (extent.offset < at || extent.offset + extent.length > entry.size)
                                   std::abort();
                                 at = extent.offset + extent.length;
                               }
                               return {};
                             },
                             [&](std::uint64_t offset, drupe::ByteView bytes) -> drupe::Status {
                               if (!open || offset + bytes.size() > file_size) std::abort();
                               return {};
                             },
                             [&]() -> drupe::Status {
                               if (!open) std::abort();
                               open = false;
                               return {};
                             }},
                            {.metadata = 65536, .extents = 4096});
  while (!rest.empty()) {
    const std::size_t count = std::min(step, rest.size());
    if (!decoder.feed(rest.first(count))) return 0;
    rest = rest.subspan(count);
  }
  (void)decoder.finish();
  return 0;
}
