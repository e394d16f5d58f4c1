#include "hypervisor/qemu/testing/test_guest.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ids.h"
#include "base/spawn.h"

namespace drupe::testing {
namespace {

constexpr std::size_t kMaxFile = 64U << 20;

std::string program_dir() {
  std::array<char, 4096> buffer{};
  const ssize_t size = ::readlink("/proc/self/exe", buffer.data(), buffer.size());
  const std::string path(buffer.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  return path.substr(0, path.rfind('/'));
}

std::string guest_dir() {
  const char* chosen = std::getenv("DRUPE_GUEST_DIR");
  return chosen != nullptr ? chosen : program_dir() + "/../guest";
}

// A newc archive; source: linux/Documentation/driver-api/early-userspace/buffer-format.rst.
void add_to_cpio(std::string& cpio, const std::string& name, const std::string& data, unsigned mode) {
  char head[111];
  std::snprintf(head, sizeof head, "070701%08X%08X%08X%08X%08X%08X%08zX%08X%08X%08X%08X%08zX%08X", 0U, mode,
                0U, 0U, 1U, 0U, data.size(), 0U, 0U, 0U, 0U, name.size() + 1, 0U);
  cpio += head;
  cpio += name;
  cpio += '\0';
  cpio.resize((cpio.size() + 3) / 4 * 4);
  cpio += data;
  cpio.resize((cpio.size() + 3) / 4 * 4);
}

Result<std::string> make_initramfs() {
  std::string cpio;
  DRUPE_ASSIGN(const std::string init, read_file(AT_FDCWD, program_dir() + "/drupe-test-init", kMaxFile));
  for (const char* dir : {"dev", "proc", "sys", "mods"}) add_to_cpio(cpio, dir, "", 040755);
  add_to_cpio(cpio, "init", init, 0100755);
  const std::string mods = guest_dir() + "/modules/";
  DRUPE_ASSIGN(const std::string order, read_file(AT_FDCWD, mods + "order", kMaxFile));
  add_to_cpio(cpio, "mods/order", order, 0100644);
  for (std::size_t at = 0; at < order.size();) {
    const auto end = std::min(order.find('\n', at), order.size());
    const std::string name = order.substr(at, end - at) + ".ko";
    DRUPE_ASSIGN(const std::string module, read_file(AT_FDCWD, mods + name, kMaxFile));
    add_to_cpio(cpio, "mods/" + name, module, 0100644);
    at = end + 1;
  }
  add_to_cpio(cpio, "TRAILER!!!", "", 0);
  return cpio;
}

template <class T>
Result<T> big_endian_at(int fd, std::uint64_t at) {
  T value{};
  if (::pread(fd, &value, sizeof value, static_cast<off_t>(at)) != sizeof value)
    return fail(ErrorCode::kIntegrity, "A disk layer is truncated");
  if constexpr (sizeof value == 8) return static_cast<T>(__builtin_bswap64(value));
  return static_cast<T>(__builtin_bswap32(static_cast<std::uint32_t>(value)));
}

constexpr std::uint64_t kCluster = 65536;
constexpr std::uint64_t kSubcluster = kCluster / 32;
constexpr std::uint64_t kOffsetMask = 0x00fffffffffffe00ULL;

// Copies the allocated subclusters of one cluster and zeroes the zeroed ones.
Status apply_cluster(int layer, int raw, std::uint64_t entry, std::uint64_t bitmap, std::uint64_t at) {
  std::array<char, kSubcluster> bytes{};
  for (std::uint64_t i = 0; i < 32; ++i) {
    const bool allocated = (bitmap >> i & 1) != 0;
    const bool zero = (bitmap >> (32 + i) & 1) != 0;
    if (!allocated && !zero) continue;
    bytes.fill(0);
    if (allocated && ::pread(layer, bytes.data(), kSubcluster,
                             static_cast<off_t>((entry & kOffsetMask) + i * kSubcluster)) < 0)
      return fail_sys("Reading a disk layer failed", errno);
    DRUPE_TRY(pwrite_all(raw, std::string_view(bytes.data(), bytes.size()), at + i * kSubcluster));
  }
  return {};
}

// Writes what a layer made by write_empty_qcow2() holds over `raw`. Reads the format on its own, as a second
// opinion.
Status apply_qcow2(int layer, int raw) {
  DRUPE_ASSIGN(const auto disk_bytes, big_endian_at<std::uint64_t>(layer, 24));
  DRUPE_ASSIGN(const auto l1_entries, big_endian_at<std::uint32_t>(layer, 36));
  DRUPE_ASSIGN(const auto l1_at, big_endian_at<std::uint64_t>(layer, 40));
  if (::ftruncate(raw, static_cast<off_t>(disk_bytes)) != 0) return fail_sys("Sizing failed", errno);
  for (std::uint64_t l1 = 0; l1 < l1_entries; ++l1) {
    DRUPE_ASSIGN(const auto l2_at, big_endian_at<std::uint64_t>(layer, l1_at + l1 * 8));
    if ((l2_at & kOffsetMask) == 0) continue;
    for (std::uint64_t l2 = 0; l2 < kCluster / 16; ++l2) {
      DRUPE_ASSIGN(const auto entry, big_endian_at<std::uint64_t>(layer, (l2_at & kOffsetMask) + l2 * 16));
      DRUPE_ASSIGN(const auto bitmap,
                   big_endian_at<std::uint64_t>(layer, (l2_at & kOffsetMask) + l2 * 16 + 8));
      const std::uint64_t at = (l1 * (kCluster / 16) + l2) * kCluster;
      if (bitmap != 0) DRUPE_TRY(apply_cluster(layer, raw, entry, bitmap, at));
    }
  }
  return {};
}

// Exit status of a program; its output goes nowhere.
int run(const std::vector<std::string>& argv) {
  SpawnRequest request;
  request.program = argv.front();
  request.argv = argv;
  request.env = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  const auto child = spawn(request);
  if (!child) return -1;
  const auto status = wait_for(*child);
  return status ? *status : -1;
}

}  // namespace

std::string TestGuest::unavailable() {
  if (::access((guest_dir() + "/vmlinux").c_str(), R_OK) != 0)
    return "the guest kernel is missing in " + guest_dir() + "; run scripts/guest.sh";
  if (::access(qemu_program().c_str(), X_OK) != 0) return qemu_program() + " is missing";
  if (::access("/sbin/mke2fs", X_OK) != 0) return "mke2fs is missing; install it: apt-get install e2fsprogs";
  return {};
}

Result<std::unique_ptr<TestGuest>> TestGuest::create_directory() {
  std::unique_ptr<TestGuest> guest(new TestGuest);
  const char* tmp = std::getenv("TMPDIR");
  guest->path_ = std::string(tmp != nullptr ? tmp : "/tmp") + "/drupe-guest-" + random_id();
  DRUPE_TRY(make_dirs(guest->path_));
  DRUPE_ASSIGN(guest->loop_, EventLoop::create());
  return guest;
}

Result<std::unique_ptr<TestGuest>> TestGuest::create(Accelerator accelerator) {
  DRUPE_ASSIGN(auto guest, create_directory());
  guest->options_.accelerator = accelerator;
  guest->options_.preload = program_dir() + "/libdrupe-ram.so";
  DRUPE_ASSIGN(guest->hypervisor_, make_qemu_hypervisor(guest->options_));
  DRUPE_TRY(guest->make_files());
  return guest;
}

Result<std::unique_ptr<TestGuest>> TestGuest::create_fake() {
  DRUPE_ASSIGN(auto guest, create_directory());
  DRUPE_TRY(replace_file(AT_FDCWD, guest->path_ + "/image.ext4", "", Sync::kNo));
  DRUPE_TRY(replace_file(AT_FDCWD, guest->path_ + "/initramfs.cpio", "", Sync::kNo));
  return guest;
}

Status TestGuest::use_fake(const std::string& mode) {
  // The mode is in the name, because the driver chooses arguments and environment.
  QemuOptions options;
  options.program = path_ + "/fake-qemu-" + mode;
  options.preload = program_dir() + "/libdrupe-ram.so";
  options.tsc_khz = 1'000'000;
  DRUPE_ASSIGN(const std::string program, read_file(AT_FDCWD, program_dir() + "/drupe-fake-qemu", kMaxFile));
  DRUPE_TRY(replace_file(AT_FDCWD, options.program, program, Sync::kNo, 0755));
  DRUPE_ASSIGN(hypervisor_, make_qemu_hypervisor(options));
  return {};
}

TestGuest::~TestGuest() {
  [[maybe_unused]] const auto removed = remove_tree(AT_FDCWD, path_);
}

Status TestGuest::make_files() {
  DRUPE_ASSIGN(const std::string initramfs, make_initramfs());
  DRUPE_TRY(replace_file(AT_FDCWD, path_ + "/initramfs.cpio", initramfs, Sync::kNo));
  DRUPE_TRY(replace_file(AT_FDCWD, path_ + "/image.ext4", "", Sync::kNo));
  if (::truncate((path_ + "/image.ext4").c_str(), static_cast<off_t>(disk_bytes)) != 0)
    return fail_sys("Sizing the image failed", errno);
  if (run({"/sbin/mke2fs", "-q", "-F", "-t", "ext4", path_ + "/image.ext4"}) != 0)
    return fail(ErrorCode::kHost, "mke2fs failed");
  return {};
}

Result<UniqueFd> TestGuest::open_file(const std::string& name, int flags) {
  return open_at(AT_FDCWD, path_ + "/" + name, flags, 0600);
}

Result<UniqueFd> TestGuest::new_layer(const std::string& name) {
  DRUPE_ASSIGN(auto fd, open_file(name, O_RDWR | O_CREAT | O_TRUNC));
  DRUPE_TRY(write_empty_qcow2(fd.get(), disk_bytes));
  return fd;
}

Result<LaunchSpec> TestGuest::spec(const std::vector<std::string>& disk, const Saved* base,
                                   const Saved* delta) {
  LaunchSpec out;
  out.shape = MachineShape{vcpus, memory_mib};
  const auto newest = delta != nullptr ? delta : base;
  if (newest == nullptr) {
    const bool fake = ::access((guest_dir() + "/vmlinux").c_str(), R_OK) != 0;
    DRUPE_ASSIGN(out.kernel, open_at(AT_FDCWD, fake ? "/dev/null" : guest_dir() + "/vmlinux", O_RDONLY));
    DRUPE_ASSIGN(out.initramfs, open_file("initramfs.cpio", O_RDONLY));
    DRUPE_ASSIGN(auto empty, open_file("empty-ram", O_RDWR | O_CREAT));
    if (::ftruncate(empty.get(), off_t{memory_mib} << 20) != 0)
      return fail_sys("Sizing the memory failed", errno);
  } else {
    DRUPE_ASSIGN(out.device_state, open_file(newest->state, O_RDONLY));
  }
  DRUPE_ASSIGN(out.memory.base, open_file(base != nullptr ? base->memory : "empty-ram", O_RDONLY));
  if (delta != nullptr) {
    DRUPE_ASSIGN(out.memory.delta, open_file(delta->memory, O_RDONLY));
    out.memory.extents = delta->extents;
  }
  for (std::size_t i = 0; i < disk.size(); ++i) {
    DiskNode node;
    node.format = i == 0 ? DiskFormat::kRaw : DiskFormat::kQcow2;
    const bool top = i + 1 == disk.size();
    if (top && ::access((path_ + "/" + disk[i]).c_str(), F_OK) != 0) {
      DRUPE_ASSIGN(node.fd, new_layer(disk[i]));
    } else {
      DRUPE_ASSIGN(node.fd, open_file(disk[i], top ? O_RDWR : O_RDONLY));
    }
    out.disk.push_back(std::move(node));
  }
  out.disk_bytes = disk_bytes;
  out.mac = {0x52, 0x54, 0, 0, 0, 1};
  return out;
}

Result<std::unique_ptr<Machine>> TestGuest::launch(LaunchSpec spec, std::chrono::milliseconds limit) {
  return hypervisor_->launch(*loop_, std::move(spec), Clock::now() + limit);
}

Result<std::unique_ptr<Machine>> TestGuest::boot(const std::vector<std::string>& disk) {
  DRUPE_ASSIGN(auto specification, spec(disk, nullptr, nullptr));
  DRUPE_ASSIGN(auto machine, launch(std::move(specification), std::chrono::seconds(120)));
  DRUPE_ASSIGN(const std::string said, hear(*loop_, *machine, std::chrono::seconds(300)));
  if (said != "ready") return fail(ErrorCode::kGuest, "The guest said: " + said + machine->console_tail());
  return machine;
}

Result<std::unique_ptr<Machine>> TestGuest::restore(const std::vector<std::string>& disk, const Saved* base,
                                                    const Saved* delta) {
  DRUPE_ASSIGN(auto specification, spec(disk, base, delta));
  return launch(std::move(specification), std::chrono::seconds(120));
}

Result<std::unique_ptr<Machine>> TestGuest::prepare(const std::vector<std::string>& disk, const Saved* base) {
  DRUPE_ASSIGN(auto specification, spec(disk, base, nullptr));
  specification.kernel.reset();
  specification.initramfs.reset();
  specification.device_state.reset();
  return hypervisor_->prepare(*loop_, std::move(specification), Clock::now() + std::chrono::seconds(120));
}

Result<SavedMachine> TestGuest::open_saved(const Saved& saved) {
  SavedMachine out;
  DRUPE_ASSIGN(out.device_state, open_file(saved.state, O_RDONLY));
  DRUPE_ASSIGN(out.delta, open_file(saved.memory, O_RDONLY));
  out.extents = saved.extents;
  return out;
}

Result<TestGuest::Saved> TestGuest::save(Machine& machine, SaveForm form) {
  Saved saved;
  const std::string number = std::to_string(next_file_++);
  saved.memory = "memory-" + number;
  saved.state = "state-" + number;
  saved.form = form;
  DRUPE_ASSIGN(auto state, open_file(saved.state, O_WRONLY | O_CREAT | O_TRUNC));
  DRUPE_ASSIGN(const auto memory, open_file(saved.memory, O_WRONLY | O_CREAT | O_TRUNC));
  DRUPE_ASSIGN(auto result,
               machine.save(std::move(state), memory.get(), form, Clock::now() + std::chrono::seconds(240)));
  saved.extents = std::move(result.extents);
  saved.bytes = result.bytes;
  return saved;
}

std::string TestGuest::fsck(const std::vector<std::string>& disk) {
  const std::string raw = path_ + "/fsck.raw";
  if (run({"/bin/cp", "--sparse=always", path_ + "/" + disk.front(), raw}) != 0) return "cp failed";
  {
    const auto out = open_at(AT_FDCWD, raw, O_RDWR);
    if (!out) return to_string(out.error());
    for (std::size_t i = 1; i < disk.size(); ++i) {
      const auto layer = open_file(disk[i], O_RDONLY);
      if (!layer) return to_string(layer.error());
      if (const auto applied = apply_qcow2(layer->get(), out->get()); !applied)
        return to_string(applied.error());
    }
  }
  // The journal is replayed first, as a mount would do; after that nothing may be wrong.
  const int replayed = run({"/sbin/e2fsck", "-fy", "-E", "journal_only", raw});
  const int checked = run({"/sbin/e2fsck", "-fn", raw});
  if (checked == 0) return {};
  return "e2fsck: " + describe_wait_status(checked) + " after journal replay " +
         describe_wait_status(replayed);
}

Result<std::string> hear(EventLoop& loop, Machine& machine, std::chrono::milliseconds limit) {
  std::string line;
  const auto readable = [&line, &machine](std::uint32_t) {
    char c = 0;
    while ((line.empty() || line.back() != '\n') && ::read(machine.control_fd(), &c, 1) == 1) line += c;
  };
  DRUPE_TRY(loop.watch(machine.control_fd(), EPOLLIN, readable));
  const auto came =
      loop.run_until([&line] { return !line.empty() && line.back() == '\n'; }, Clock::now() + limit);
  loop.unwatch(machine.control_fd());
  if (!came) return std::unexpected(came.error());
  if (!*came)
    return fail(ErrorCode::kTimeout, "The guest does not answer; console: " + machine.console_tail());
  line.pop_back();
  return line;
}

Result<std::string> ask(EventLoop& loop, Machine& machine, const std::string& line,
                        std::chrono::milliseconds limit) {
  const std::string text = line + "\n";
  if (::send(machine.control_fd(), text.data(), text.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(text.size()))
    return fail_sys("Sending to the guest failed", errno);
  return hear(loop, machine, limit);
}

}  // namespace drupe::testing
