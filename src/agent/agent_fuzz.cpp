// What the agent parses of the image's files, the user's archives and the caller's patterns and commands.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "agent/ignore.h"
#include "agent/order.h"
#include "agent/tar_read.h"
#include "agent/users.h"

namespace {

using namespace drupe;

void tar(std::string_view bytes) {
  agent::TarReader reader([&](char* buffer, std::size_t size) -> Result<std::size_t> {
    const std::size_t part = std::min(size, bytes.size());
    std::memcpy(buffer, bytes.data(), part);
    bytes.remove_prefix(part);
    return part;
  });
  while (true) {
    const auto entry = reader.next();
    if (!entry || !*entry) return;
    std::uint64_t end = 0;
    for (const auto& extent : (*entry)->extents) {
      if (extent.offset < end || extent.offset + extent.length > (*entry)->size) __builtin_trap();
      end = extent.offset + extent.length;
    }
    char buffer[512];
    auto got = reader.read(buffer, sizeof buffer);
    if (!got) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t cut = std::min<std::size_t>(data[1], text.size());
  switch (data[0] % 4) {
    case 0:
      tar(text);
      break;
    case 1: {
      const auto half = text.substr(cut);
      [[maybe_unused]] const auto ids = agent::find_user(text.substr(0, cut), half, half);
      break;
    }
    case 2: {
      [[maybe_unused]] const auto order = agent::Order::decode(as_bytes(text));
      break;
    }
    default: {
      const agent::IgnoreRules rules({std::string(text.substr(0, cut))});
      [[maybe_unused]] const bool ignored = rules.ignores(text.substr(cut).substr(0, 256), true);
    }
  }
  return 0;
}
