#include "engine/sandbox_files.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <memory>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "engine/guest_assets.h"
#include "engine/shim_launch.h"
#include "shim/spec.h"

namespace drupe {
namespace {

constexpr const char* kLinkedRam = "base.ram";
constexpr const char* kLinkedState = "base.state";
constexpr const char* kLinkedDisk = "base.qcow2";

Status relink(DirFd from_dir, const std::string& from, int dir, const std::string& to) {
  ::unlinkat(dir, to.c_str(), 0);
  return link_file(from_dir, from, dir, to);
}

/// Files that belong to every sandbox, whatever its record says.
bool is_permanent(std::string_view name) {
  return name == kRecordFile || name == kLockFile || name == kShimLogFile || name == "log" ||
         name == "log.1" || name == kKernelFile || name == kInitramfsFile;
}

struct DirCloser {
  void operator()(DIR* stream) const { ::closedir(stream); }
};

}  // namespace

Status link_kernel(const Home& home, const std::string& kernel_directory, int dir) {
  for (const char* name : {kKernelFile, kInitramfsFile})
    DRUPE_TRY(relink(home.dir(), kernel_directory + "/" + name, dir, name));
  return {};
}

Status link_base(const Home& home, const BaseManifest& manifest, int dir, SandboxRecord& record) {
  const std::string base = Home::base(manifest.key) + "/";
  DRUPE_TRY(relink(home.dir(), base + kBaseRamFile, dir, kLinkedRam));
  DRUPE_TRY(relink(home.dir(), base + kBaseStateFile, dir, kLinkedState));
  DRUPE_TRY(relink(home.dir(), base + kBaseDiskFile, dir, kLinkedDisk));
  DRUPE_TRY(link_kernel(home, "kernels/" + manifest.kernel_digest, dir));
  record.base_key = manifest.key;
  record.base_ram_file = kLinkedRam;
  record.disk_chain = {kImageFile, kLinkedDisk};
  add_disk_node(record);
  SavedState saved;
  saved.device_state_file = kLinkedState;
  saved.epoch = manifest.epoch;
  saved.durable = true;
  record.saved = std::move(saved);
  record.state_key = manifest.state_key;
  record.tsc_khz = manifest.tsc_khz;
  return {};
}

Result<SandboxRecord> read_own_record(int dir, const std::string& id) {
  DRUPE_ASSIGN(SandboxRecord record, read_record(dir));
  if (record.id != id)
    return fail(ErrorCode::kIntegrity, "The record of sandbox " + id + " names another sandbox",
                "drupe rm -f " + id + " removes it.");
  return record;
}

void add_disk_node(SandboxRecord& record) {
  record.disk_chain.push_back("disk-" + std::to_string(record.next_file++) + ".qcow2");
}

std::vector<std::string> needed_files(const SandboxRecord& record) {
  std::vector<std::string> names = record.disk_chain;
  names.insert(names.end(), {kKernelFile, kInitramfsFile, record.base_ram_file});
  if (record.saved)
    names.insert(names.end(), {record.saved->delta_file, record.saved->extents_file,
                               record.saved->device_state_file, record.saved->flows_file});
  std::erase(names, "");
  return names;
}

std::uint32_t sweep_files(int dir, const SandboxRecord& record) {
  auto again = open_at(dir, ".", O_DIRECTORY | O_RDONLY);
  if (!again) return 0;
  const std::unique_ptr<DIR, DirCloser> stream(::fdopendir(again->get()));
  if (!stream) return 0;
  static_cast<void>(again->release());
  const auto needed = needed_files(record);
  std::uint32_t removed = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == ".." || is_permanent(name) || std::ranges::find(needed, name) != needed.end())
      continue;
    if (::unlinkat(dir, name.c_str(), 0) == 0) ++removed;
  }
  return removed;
}

void forget_memory(SandboxRecord& record) {
  record.saved.reset();
  record.base_ram_file.clear();
  record.base_key.clear();
}

std::int64_t realtime_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace drupe
