#include "clone_files.h"

#include "guest_work.h"
#include "image/store.h"

namespace drupe::bench {

std::vector<std::string> BaseFiles::clone_command(const Bench& bench) const {
  return {bench.settings.tool_dir + "/drupe-bench-clone",
          preload,
          std::to_string(tsc_khz),
          files.image,
          files.node,
          files.ram,
          files.state,
          files.top,
          std::to_string(files.memory_mib)};
}

Result<BaseFiles> find_base_files(Bench& bench, std::uint32_t memory_mib) {
  DRUPE_ASSIGN(const auto guest, Guest::start(bench, memory_mib));
  DRUPE_ASSIGN(const SandboxInfo info, bench.engine.find(guest->id()));
  DRUPE_ASSIGN(ImageStore* const store, bench.engine.images());
  DRUPE_ASSIGN(const Image image, store->find(bench.settings.image));
  if (info.record.base_key.empty())
    return fail(ErrorCode::kHost, "The sandbox did not start from a base snapshot");
  const std::string directory = bench.engine.home() + "/bases/" + info.record.base_key;
  BaseFiles base;
  base.files.image = image.disk_path;
  base.files.node = directory + "/" + kBaseDiskFile;
  base.files.ram = directory + "/" + kBaseRamFile;
  base.files.state = directory + "/" + kBaseStateFile;
  base.files.top = bench.settings.scratch + "/clone.qcow2";
  base.files.memory_mib = memory_mib;
  base.tsc_khz = info.record.tsc_khz;
  base.preload = bench.settings.binary_dir + "/libdrupe-ram.so";
  return base;
}

}  // namespace drupe::bench
