#include "base/ids.h"

#include <cerrno>
#include <cstdlib>

#include <sys/random.h>

namespace drupe {

std::string random_bytes(std::size_t bytes) {
  std::string out(bytes, '\0');
  std::size_t have = 0;
  while (have < bytes) {
    const ssize_t got = ::getrandom(out.data() + have, bytes - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) std::abort();  // an id that is not random is worse than no process
    have += static_cast<std::size_t>(got);
  }
  return out;
}

std::string to_hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string random_id() {
  return to_hex(random_bytes(6));
}

}  // namespace drupe
