// Frames and markers from hostile bytes, cut at hostile places.
#include <cstddef>
#include <cstdint>

#include "protocol/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace drupe;
  if (size < 2) return 0;
  const std::size_t step = static_cast<std::size_t>(data[0]) + 1;
  ByteView bytes(data + 1, size - 1);
  MarkerScanner scanner(data[0] & 1);
  ByteView marked = bytes;
  while (!marked.empty()) {
    ByteView part = marked.first(std::min(step, marked.size()));
    marked = marked.subspan(part.size());
    if (scanner.scan(part)) break;
  }
  FrameParser parser;
  while (!bytes.empty()) {
    const ByteView part = bytes.first(std::min(step, bytes.size()));
    bytes = bytes.subspan(part.size());
    const auto fed = parser.feed(part, [](const Frame& frame) -> Status {
      if (frame.payload.size() > kMaxPayload) __builtin_trap();
      return {};
    });
    if (!fed) break;
  }
  return 0;
}
