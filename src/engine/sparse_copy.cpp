#include "engine/sparse_copy.h"

#include <cerrno>

#include <unistd.h>

#include "base/files.h"

namespace drupe {

Status copy_data(int in, int out, off_t size) {
  off_t at = 0;
  while (at < size) {
    const off_t data = ::lseek(in, at, SEEK_DATA);
    if (data < 0) break;  // ENXIO: only a hole is left
    const off_t end = ::lseek(in, data, SEEK_HOLE);
    if (end < 0) return fail_sys("Looking for a hole failed", errno);
    DRUPE_TRY(copy_bytes(in, out, static_cast<std::uint64_t>(data), static_cast<std::uint64_t>(end - data)));
    at = end;
  }
  if (::ftruncate(out, size) != 0) return fail_sys("Setting the size of a copy failed", errno);
  return {};
}

}  // namespace drupe
