#include "own_initramfs.h"

#include <algorithm>
#include <cstdio>

#include <fcntl.h>

#include "base/files.h"

namespace drupe::bench {
namespace {

constexpr std::size_t kMostFile = 64U << 20;

// A newc archive; source: linux/Documentation/driver-api/early-userspace/buffer-format.rst.
void add_to_archive(std::string& out, const std::string& name, const std::string& data, unsigned mode) {
  char head[111];
  std::snprintf(head, sizeof head, "070701%08X%08X%08X%08X%08X%08X%08zX%08X%08X%08X%08X%08zX%08X", 0U, mode,
                0U, 0U, 1U, 0U, data.size(), 0U, 0U, 0U, 0U, name.size() + 1, 0U);
  out.append(head).append(name).push_back('\0');
  out.resize((out.size() + 3) / 4 * 4);
  out.append(data);
  out.resize((out.size() + 3) / 4 * 4);
}

}  // namespace

Result<std::string> own_initramfs(const std::string& guest_dir, const std::string& init_path) {
  std::string out;
  for (const char* dir : {"dev", "proc", "sys", "mods"}) add_to_archive(out, dir, "", 040755);
  DRUPE_ASSIGN(const std::string init, read_file(AT_FDCWD, init_path, kMostFile));
  add_to_archive(out, "init", init, 0100755);
  const std::string modules = guest_dir + "/modules/";
  DRUPE_ASSIGN(const std::string order, read_file(AT_FDCWD, modules + "order", kMostFile));
  add_to_archive(out, "mods/order", order, 0100644);
  for (std::size_t at = 0; at < order.size();) {
    const auto end = std::min(order.find('\n', at), order.size());
    const std::string name = order.substr(at, end - at) + ".ko";
    DRUPE_ASSIGN(const std::string module, read_file(AT_FDCWD, modules + name, kMostFile));
    add_to_archive(out, "mods/" + name, module, 0100644);
    at = end + 1;
  }
  add_to_archive(out, "TRAILER!!!", "", 0);
  return out;
}

}  // namespace drupe::bench
