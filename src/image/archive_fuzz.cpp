// Tar files as image archives.
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "image/archive.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = ::memfd_create("archive", MFD_CLOEXEC);
  if (::ftruncate(file, 0) != 0 || !drupe::pwrite_all(file, drupe::as_text({data, size}), 0)) return 0;
  const auto archive = drupe::open_tar_archive(file, 0);
  if (!archive) return 0;
  for (const char* name : {"manifest.json", "index.json", "a/layer.tar"})
    static_cast<void>((*archive)->read(name, 65536));
  return 0;
}
