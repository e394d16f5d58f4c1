#include "agent/own_pages.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>

#include "agent/sys.h"

namespace drupe::agent {
namespace {

constexpr std::uintptr_t kPage = 4096;

std::uintptr_t hex(std::string_view digits) {
  std::uintptr_t value = 0;
  for (const char c : digits)
    value = value * 16 + static_cast<std::uintptr_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  return value;
}

void own(std::uintptr_t begin, std::uintptr_t end) {
  std::vector<unsigned char> present((end - begin) / kPage);
  if (::mincore(reinterpret_cast<void*>(begin), end - begin, present.data()) != 0) return;
  for (std::size_t i = 0; i < present.size(); ++i) {
    if ((present[i] & 1) == 0) continue;
    auto* const byte = reinterpret_cast<volatile char*>(begin + i * kPage);
    *byte = *byte;
  }
}

}  // namespace

void own_pages() {
  // "begin-end rw-p ..." by proc(5).
  const std::string maps = slurp(AT_FDCWD, "/proc/self/maps");
  std::string_view rest = maps;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() == rest.size() ? line.size() : line.size() + 1);
    const auto dash = line.find('-');
    const auto space = line.find(' ');
    if (dash == std::string_view::npos || space == std::string_view::npos || space < dash) continue;
    if (line.substr(space + 1, 4) != "rw-p") continue;
    own(hex(line.substr(0, dash)), hex(line.substr(dash + 1, space - dash - 1)));
  }
}

}  // namespace drupe::agent
