#include "shim/testing/shim_process.h"

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/ids.h"
#include "hypervisor/qemu/qemu.h"

namespace drupe::testing {
namespace {

constexpr std::chrono::seconds kStartLimit{120};
constexpr std::uint64_t kDiskBytes = 8ULL << 30;

std::string own_directory() {
  char target[PATH_MAX];
  const ssize_t got = ::readlink("/proc/self/exe", target, sizeof target);
  const std::string path(target, got > 0 ? static_cast<std::size_t>(got) : 0);
  return path.substr(0, path.rfind('/'));
}

std::string env_or(const char* name, const std::string& other) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : other;
}

bool exists(const std::string& path) {
  return ::access(path.c_str(), R_OK) == 0;
}

// Same file system as the assets, so that links work.
std::string scratch() {
  return env_or("DRUPE_TEST_SCRATCH", "/tmp");
}

Status link_or_copy(const std::string& from, int dir, const std::string& name) {
  if (::linkat(AT_FDCWD, from.c_str(), dir, name.c_str(), 0) == 0) return {};
  if (errno != EXDEV && errno != EPERM) return fail_sys("Linking " + from + " failed", errno);
  DRUPE_ASSIGN(const UniqueFd in, open_at(AT_FDCWD, from, O_RDONLY));
  DRUPE_ASSIGN(const UniqueFd out, open_at(dir, name, O_WRONLY | O_CREAT | O_EXCL));
  struct stat info{};
  if (::fstat(in.get(), &info) != 0) return fail_sys("Looking at " + from + " failed", errno);
  return copy_bytes(in.get(), out.get(), 0, static_cast<std::uint64_t>(info.st_size));
}

}  // namespace

const GuestAssets& GuestAssets::get() {
  static const GuestAssets assets = [] {
    GuestAssets found;
    found.binary_dir = own_directory();
    found.guest_dir = env_or("DRUPE_GUEST_DIR", found.binary_dir + "/../guest");
    found.disk = env_or("DRUPE_TEST_DISK", found.binary_dir + "/../busybox.ext4");
    return found;
  }();
  return assets;
}

std::string GuestAssets::unavailable() {
  const GuestAssets& assets = get();
  for (const auto& path : {assets.guest_dir + "/vmlinux", assets.guest_dir + "/initramfs.cpio",
                           assets.binary_dir + "/drupe-shim", assets.binary_dir + "/libdrupe-ram.so",
                           assets.disk, qemu_program()})
    if (!exists(path)) return path + " is missing (DRUPE_GUEST_DIR, DRUPE_TEST_DISK)";
  return {};
}

Result<std::unique_ptr<ShimProcess>> ShimProcess::create(EventLoop& loop) {
  const GuestAssets& assets = GuestAssets::get();
  std::unique_ptr<ShimProcess> shim(new ShimProcess(loop));
  shim->record.id = random_id();
  shim->path_ = scratch() + "/drupe-shim-test-" + shim->record.id;
  DRUPE_ASSIGN(shim->dir_, make_dir_at(AT_FDCWD, shim->path_));
  DRUPE_TRY(link_or_copy(assets.guest_dir + "/vmlinux", shim->dir(), kKernelFile));
  DRUPE_TRY(link_or_copy(assets.guest_dir + "/initramfs.cpio", shim->dir(), kInitramfsFile));
  DRUPE_TRY(link_or_copy(assets.disk, shim->dir(), "image.ext4"));
  shim->record.name = "test-" + shim->record.id;
  shim->record.shape = {1, 256};
  shim->record.disk_bytes = kDiskBytes;
  shim->record.disk_chain = {"image.ext4"};
  shim->record.hostname = "tester";
  shim->record.image_env = {"PATH=/usr/local/bin:/usr/bin:/bin"};
  shim->record.detached = true;
  shim->spec.start_deadline_ms = 60'000;
  shim->spec.accelerator = Accelerator::kTcg;
  static const std::uint64_t khz = measure_tsc_khz();
  shim->spec.tsc_khz = khz;
  shim->spec.preload_path = assets.binary_dir + "/libdrupe-ram.so";
  return shim;
}

ShimProcess::~ShimProcess() {
  if (running_) {
    kill_child(child_);
    (void)wait_for(child_);
  }
  (void)remove_tree(AT_FDCWD, path_);
}

Result<ShimStatus> ShimProcess::start(LaunchMode mode) {
  if (running_) DRUPE_TRY(wait());
  spec.mode = mode;
  DRUPE_TRY(write_record(dir(), record));
  DRUPE_ASSIGN(const UniqueFd lock, open_at(dir(), kLockFile, O_RDWR | O_CREAT));
  if (::flock(lock.get(), LOCK_EX) != 0) return fail_sys("Locking failed", errno);
  UniqueFd spec_fd(::memfd_create("spec", MFD_CLOEXEC));
  DRUPE_TRY(write_all(spec_fd.get(), spec.encode()));
  if (::lseek(spec_fd.get(), 0, SEEK_SET) != 0) return fail_sys("Seeking failed", errno);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_sys("Creating a pipe failed", errno);
  const UniqueFd status_read(ends[0]);
  UniqueFd status_write(ends[1]);
  SpawnRequest request;
  request.program = GuestAssets::get().binary_dir + "/drupe-shim";
  request.argv = {"drupe-shim"};
  request.fds = {{2, 2},
                 {spec_fd.get(), kSpecFd},
                 {dir_.get(), kDirFd},
                 {lock.get(), kLockFd},
                 {status_write.get(), kStatusFd}};
  DRUPE_ASSIGN(child_, spawn(request));
  running_ = true;
  status_write.reset();
  std::string bytes;
  bool ended = false;
  DRUPE_TRY(loop_.watch(status_read.get(), EPOLLIN, [&](std::uint32_t) {
    char chunk[4096];
    const ssize_t got = ::read(status_read.get(), chunk, sizeof chunk);
    if (got > 0)
      bytes.append(chunk, static_cast<std::size_t>(got));
    else
      ended = true;
  }));
  const auto waited = loop_.run_until([&] { return ended; }, Clock::now() + kStartLimit);
  loop_.unwatch(status_read.get());
  if (!waited || !*waited) return fail(ErrorCode::kTimeout, "The shim did not report its start");
  return ShimStatus::decode(bytes);
}

Result<int> ShimProcess::wait() {
  if (!running_) return 0;
  bool ended = false;
  DRUPE_TRY(loop_.watch(child_.pidfd.get(), EPOLLIN, [&](std::uint32_t) { ended = true; }));
  const auto waited = loop_.run_until([&] { return ended; }, Clock::now() + kStartLimit);
  loop_.unwatch(child_.pidfd.get());
  if (!waited || !*waited) return fail(ErrorCode::kTimeout, "The shim did not end");
  running_ = false;
  return wait_for(child_);
}

void ShimProcess::kill(int signal) {
  ::kill(child_.pid, signal);
}

Result<std::unique_ptr<ShimClient>> ShimProcess::connect() {
  return ShimClient::connect(loop_, dir());
}

Result<ExecResult> ShimProcess::shell(ShimClient& client, const std::string& line) {
  ExecOptions options;
  options.exec_id = "t-" + random_id();
  options.argv = {"/bin/sh", "-c", line};
  return run_command(client, loop_, options, {}, 16U << 20, Clock::now() + kStartLimit);
}

Status ShimProcess::link_from(const ShimProcess& other, const std::string& name) {
  if (name.empty() || has(name)) return {};
  if (::linkat(other.dir(), name.c_str(), dir(), name.c_str(), 0) != 0)
    return fail_sys("Linking " + name + " failed", errno);
  return {};
}

Status ShimProcess::use_base(const ShimProcess& base) {
  DRUPE_ASSIGN(const SandboxRecord made, base.read());
  for (const auto& name : made.disk_chain) DRUPE_TRY(link_from(base, name));
  DRUPE_TRY(link_from(base, made.base_ram_file));
  DRUPE_TRY(link_from(base, made.saved->device_state_file));
  record.disk_chain = made.disk_chain;
  record.disk_chain.push_back("disk-0.qcow2");
  record.base_ram_file = made.base_ram_file;
  record.base_key = "test";
  record.saved = made.saved;
  return {};
}

bool ShimProcess::alive() const {
  const auto lock = open_at(dir(), kLockFile, O_RDONLY);
  return lock && ::flock(lock->get(), LOCK_SH | LOCK_NB) != 0;
}

bool ShimProcess::has(const std::string& name) const {
  return ::faccessat(dir(), name.c_str(), F_OK, 0) == 0;
}

}  // namespace drupe::testing
