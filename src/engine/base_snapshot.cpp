#include "engine/base_snapshot.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ids.h"
#include "engine/admission.h"
#include "engine/file_lock.h"
#include "engine/sandbox_files.h"
#include "engine/shim_launch.h"

namespace drupe {
namespace {

/// Longer than the slowest first boot of a waiting process's predecessor.
constexpr std::chrono::minutes kMakingWait{10};
constexpr std::uint32_t kBootDeadlineMs = 180'000;
constexpr std::uint64_t kLeastDiskRoom = std::uint64_t{256} << 20;
/// How often a use is noted; prune decides by days.
constexpr time_t kUseResolution = 600;

/// What the machine has done before it is saved, so that no sandbox pays for loading it: dynamic linking, a
/// shell, an interpreter. What an image lacks is skipped.
std::vector<std::string> exercises() {
  return {"/bin/true", "cat /proc/self/status >/dev/null; ls -l / >/dev/null",
          "python3 -c 'import os, sys, json, re, subprocess'", "node -e 0", "/bin/true"};
}

void note_use(const Home& home, const std::string& key) {
  const std::string path = Home::base(key) + "/" + kManifestFile;
  struct stat found{};
  if (::fstatat(home.dir(), path.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (::time(nullptr) - found.st_mtime < kUseResolution) return;
  ::utimensat(home.dir(), path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

Result<BaseManifest> read_base(const Home& home, const std::string& key) {
  DRUPE_ASSIGN(const std::string text, read_file(home.dir(), Home::base(key) + "/" + kManifestFile, 65536));
  DRUPE_ASSIGN(BaseManifest manifest, decode_manifest(text));
  if (manifest.key != key)
    return fail(ErrorCode::kIntegrity, "The base snapshot " + key + " has another one's manifest");
  return manifest;
}

Result<BaseManifest> fitting_base(const BaseContext& context, const std::string& key) {
  DRUPE_ASSIGN(BaseManifest manifest, read_base(context.home, key));
  if (!same_tsc(manifest.tsc_khz, context.host.hypervisor.tsc_khz))
    return fail(ErrorCode::kMemoryIncompatible, "The base snapshot was made with another clock frequency");
  note_use(context.home, key);
  return manifest;
}

SandboxRecord base_record(const BaseContext& context, const BaseRecipe& recipe) {
  SandboxRecord record;
  record.id = random_id();
  record.name = "base-" + record.id;
  record.image_id = recipe.image_id;
  record.shape = recipe.shape;
  record.cpus = recipe.shape.vcpus;
  record.image_env = recipe.env;
  record.image_user = recipe.user;
  record.image_cwd = recipe.cwd;
  record.hostname = "drupe";
  record.machine_id = to_hex(random_bytes(16));
  record.created_ns = realtime_ns();
  record.disk_chain = {kImageFile, kBaseDiskFile};
  record.state_key = context.host.hypervisor.state_key;
  record.tsc_khz = context.host.hypervisor.tsc_khz;
  return record;
}

Status flush(int dir, const char* name) {
  DRUPE_ASSIGN(const UniqueFd fd, open_at(dir, name, O_RDONLY | O_NOFOLLOW));
  if (::fchmod(fd.get(), 0400) != 0) return fail_sys("Protecting " + std::string(name) + " failed", errno);
  if (::fsync(fd.get()) != 0) return fail_sys("Flushing " + std::string(name) + " failed", errno);
  return {};
}

/// Removes everything but what a base snapshot consists of.
Status strip(const Home& home, const std::string& directory) {
  DRUPE_ASSIGN(const auto names, home.names_in(directory));
  for (const std::string& name : names)
    if (name != kBaseRamFile && name != kBaseStateFile && name != kBaseDiskFile)
      DRUPE_TRY(remove_tree(home.dir(), directory + "/" + name));
  return {};
}

Result<SandboxRecord> boot_and_save(const BaseContext& context, const BaseRecipe& recipe,
                                    Home::Scratch& scratch) {
  const int dir = scratch.dir.get();
  DRUPE_TRY(link_file(AT_FDCWD, recipe.image_disk, dir, kImageFile));
  for (const char* name : {kKernelFile, kInitramfsFile})
    DRUPE_TRY(link_file(context.home.dir(), context.assets.directory + "/" + name, dir, name));
  DRUPE_TRY(write_record(dir, base_record(context, recipe)));
  ShimSpec spec;
  spec.mode = LaunchMode::kMakeBase;
  spec.owner_bound = true;
  spec.owner_pid = ::getpid();
  spec.start_deadline_ms = kBootDeadlineMs;
  spec.restore_retries = 0;
  spec.accelerator = context.host.hypervisor.accelerator;
  spec.tsc_khz = context.host.hypervisor.tsc_khz;
  spec.qemu_path = context.host.qemu_path;
  spec.preload_path = context.installation.preload_path;
  spec.record_dir_path = scratch.path;
  spec.exercise = exercises();
  DRUPE_ASSIGN(StartingShim shim, StartingShim::start(context.installation, dir, scratch.lock.get(), spec));
  DRUPE_ASSIGN(const ShimStatus status, shim.finish());
  const ChildProcess child = shim.take_child();
  // It has saved; its end gives the files their last byte.
  DRUPE_TRY(wait_for(child));
  if (status.error) return std::unexpected(*status.error);
  return read_record(dir);
}

Result<BaseManifest> make_base(const BaseContext& context, const BaseRecipe& recipe, const std::string& key) {
  if (context.on_stage) context.on_stage("Booting the image once");
  DRUPE_TRY(check_disk_room(context.home, kLeastDiskRoom));
  DRUPE_ASSIGN(Home::Scratch scratch, context.home.make_scratch("base"));
  auto record = boot_and_save(context, recipe, scratch);
  if (!record || !record->saved) {
    static_cast<void>(context.home.discard(scratch.path));
    if (record) return fail(ErrorCode::kHost, "The supervisor saved no base snapshot");
    return std::unexpected(std::move(record).error().in("Making the base snapshot of the image failed"));
  }
  if (context.on_stage) context.on_stage("Keeping the booted machine");
  BaseManifest manifest;
  manifest.key = key;
  manifest.image_id = recipe.image_id;
  manifest.kernel_digest = context.assets.digest;
  manifest.state_key = context.host.hypervisor.state_key;
  manifest.tsc_khz = context.host.hypervisor.tsc_khz;
  manifest.epoch = record->saved->epoch;
  manifest.disk_bytes = record->disk_bytes;
  manifest.created_ns = realtime_ns();
  manifest.shape = recipe.shape;
  DRUPE_TRY(strip(context.home, scratch.path));
  for (const char* name : {kBaseRamFile, kBaseStateFile, kBaseDiskFile})
    DRUPE_TRY(flush(scratch.dir.get(), name));
  DRUPE_TRY(replace_file(scratch.dir.get(), kManifestFile, encode_manifest(manifest), Sync::kYes));
  DRUPE_TRY(context.home.discard(Home::base(key)));  // one that did not fit
  if (::renameat(context.home.dir(), scratch.path.c_str(), context.home.dir(), Home::base(key).c_str()) != 0)
    return fail_sys("Publishing the base snapshot failed", errno);
  DRUPE_ASSIGN(const UniqueFd bases, open_at(context.home.dir(), "bases", O_DIRECTORY | O_RDONLY));
  if (::fsync(bases.get()) != 0) return fail_sys("Flushing the base snapshots' directory failed", errno);
  return manifest;
}

}  // namespace

Result<BaseManifest> find_base(const BaseContext& context, const BaseRecipe& recipe) {
  return fitting_base(context, base_key(recipe, context.assets, context.host.hypervisor));
}

Result<BaseManifest> ensure_base(const BaseContext& context, const BaseRecipe& recipe) {
  const std::string key = base_key(recipe, context.assets, context.host.hypervisor);
  if (auto have = fitting_base(context, key)) return have;
  auto lock = try_lock(context.home.dir(), "locks/base-" + key);
  if (lock && !lock->valid()) {
    if (context.on_stage) context.on_stage("Waiting for another process that boots the image");
    lock = lock_file(context.home.dir(), "locks/base-" + key, Clock::now() + kMakingWait,
                     "the base snapshot of this image");
  }
  if (!lock) return std::unexpected(std::move(lock).error());
  if (auto have = fitting_base(context, key)) return have;
  return make_base(context, recipe, key);
}

}  // namespace drupe
