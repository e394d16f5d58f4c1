#include "hypervisor/qemu/launch.h"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/spawn.h"
#include "hypervisor/qemu/command.h"

namespace drupe {
namespace {

constexpr std::uint32_t kMaxOpenFiles = 512;
constexpr std::uint32_t kMaxThreads = 256;
constexpr int kOomScoreAdj = 900;
constexpr std::size_t kMaxDiskNodes = 64;

struct SocketPair {
  UniqueFd host;
  UniqueFd guest;
};

// The host's end is non-blocking, qemu's is what qemu makes of it.
Result<SocketPair> socket_pair(int type) {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds.data()) != 0)
    return fail_sys("Creating a socket pair failed", errno);
  SocketPair pair{UniqueFd(fds[0]), UniqueFd(fds[1])};
  ::fcntl(pair.host.get(), F_SETFL, O_NONBLOCK);
  return pair;
}

Result<std::uint64_t> size_of(int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return fail_sys("Looking at a file of the machine failed", errno);
  return static_cast<std::uint64_t>(info.st_size);
}

Status check_spec(const LaunchSpec& spec) {
  const auto& shape = spec.shape;
  if (shape.vcpus < 1 || shape.vcpus > 32)
    return fail(ErrorCode::kInvalidArgument, "A machine has 1 to 32 vCPUs");
  if (shape.memory_mib < 256 || shape.memory_mib > 65536 || shape.memory_mib % 256 != 0)
    return fail(ErrorCode::kInvalidArgument, "A machine has 256 to 65536 MiB of memory in steps of 256");
  if (spec.disk.empty() || spec.disk.size() > kMaxDiskNodes)
    return fail(ErrorCode::kInvalidArgument, "A machine's disk has 1 to 64 layers");
  const std::uint64_t ram = std::uint64_t{shape.memory_mib} << 20;
  DRUPE_ASSIGN(const std::uint64_t base, size_of(spec.memory.base.get()));
  if (base != ram)
    return fail(ErrorCode::kIntegrity, "The saved memory has not the size of the machine's memory");
  std::uint64_t delta = 0;
  if (spec.memory.delta.valid()) {
    DRUPE_ASSIGN(delta, size_of(spec.memory.delta.get()));
  }
  DRUPE_TRY(check_extents(spec.memory.extents, ram, delta));
  for (std::size_t i = 0; i < spec.disk.size(); ++i) {
    const int mode = ::fcntl(spec.disk[i].fd.get(), F_GETFL) & O_ACCMODE;
    if (mode != (i + 1 == spec.disk.size() ? O_RDWR : O_RDONLY))
      return fail(ErrorCode::kInvalidArgument, "Only the topmost layer of a disk may be open for writing");
  }
  return {};
}

}  // namespace

Result<UniqueFd> extents_file(const std::vector<MemoryExtent>& extents) {
  static_assert(sizeof(MemoryExtent) == 24, "the layout that ram_preload.c reads");
  UniqueFd file(::memfd_create("drupe-extents", MFD_CLOEXEC));
  if (!file.valid()) return fail_sys("Creating a memory file failed", errno);
  const std::uint64_t count = extents.size();
  std::string bytes(reinterpret_cast<const char*>(&count), sizeof count);
  bytes.append(reinterpret_cast<const char*>(extents.data()), extents.size() * sizeof(MemoryExtent));
  DRUPE_TRY(write_all(file.get(), bytes));
  if (::lseek(file.get(), 0, SEEK_SET) < 0) return fail_sys("Rewinding a memory file failed", errno);
  return file;
}

namespace {

bool has_no_data(int fd) {
  const bool none = ::lseek(fd, 0, SEEK_DATA) < 0 && errno == ENXIO;
  ::lseek(fd, 0, SEEK_SET);
  return none;
}

// Everything that one launch opens; the child's ends close with it, after the exec.
class Launch {
 public:
  Launch(const QemuOptions& options, LaunchSpec spec, LaunchStage stage)
      : options_(options), spec_(std::move(spec)), stage_(stage) {}

  Result<QemuParts> run(std::vector<pid_t>* failed_siblings) {
    DRUPE_TRY(check_spec(spec_));
    DRUPE_TRY(open_channels());
    DRUPE_TRY(open_files());
    DRUPE_TRY(open_state_file());
    SpawnRequest request;
    request.program = options_.program;
    QemuCommand command = qemu_command(command_input());
    request.argv = std::move(command.argv);
    request.env = {"LC_ALL=C", "LD_PRELOAD=" + options_.preload, "DRUPE_PRELOAD=" + command.preload};
    request.fds = std::move(fds_);
    request.die_with_parent = true;
    request.failed_siblings = failed_siblings;
    DRUPE_ASSIGN(auto confined, spawn_confined(request, confinement()));
    parts_.child = std::move(confined.child);
    parts_.confinement_missing = std::move(confined.missing);
    open_proc();
    parts_.ram_bytes = std::uint64_t{spec_.shape.memory_mib} << 20;
    parts_.extents = std::move(spec_.memory.extents);
    parts_.disk_nodes = spec_.disk.size();
    return std::move(parts_);
  }

 private:
  [[nodiscard]] QemuCommandInput command_input() const {
    QemuCommandInput input;
    input.program = options_.program;
    input.accelerator = options_.accelerator;
    input.tsc_khz = options_.tsc_khz;
    input.shape = spec_.shape;
    input.restore = stage_ != LaunchStage::kBoot;
    input.late_delta = stage_ == LaunchStage::kPrepare;
    input.has_delta = spec_.memory.delta.valid() && !spec_.memory.extents.empty();
    input.anonymous_ram = has_no_data(spec_.memory.base.get());
    input.command_line = spec_.command_line;
    for (const auto& node : spec_.disk) input.disk.push_back(node.format);
    input.mac = spec_.mac;
    return input;
  }

  [[nodiscard]] Confinement confinement() const {
    Confinement out;
    out.paths = system_library_paths();
    out.paths.push_back(PathRule{options_.program, false, true});
    out.paths.push_back(PathRule{options_.preload});
    out.oom_score_adj = kOomScoreAdj;
    out.max_open_files = kMaxOpenFiles;
    out.max_processes = kMaxThreads;
    return out;
  }

  // Before the go-ahead, after which the process is not dumpable any more. The absence of the first two shows
  // at the first save, that of the others in the numbers for people.
  void open_proc() {
    const std::string proc = "/proc/" + std::to_string(parts_.child.pid);
    const auto open = [&proc](const char* name) {
      return UniqueFd(::open((proc + name).c_str(), O_RDONLY | O_CLOEXEC));
    };
    parts_.mem = open("/mem");
    parts_.pagemap = open("/pagemap");
    parts_.smaps = open("/smaps");
    parts_.stat = open("/stat");
  }

  void give(UniqueFd fd, int number) {
    fds_.push_back(FdMapping{fd.get(), number});
    child_ends_.push_back(std::move(fd));
  }

  Status channel(UniqueFd QemuParts::* host, int number, int type = SOCK_STREAM) {
    DRUPE_ASSIGN(auto pair, socket_pair(type));
    parts_.*host = std::move(pair.host);
    give(std::move(pair.guest), number);
    return {};
  }

  Status open_channels() {
    DRUPE_TRY(channel(&QemuParts::qmp, qemu_fd::kQmp));
    DRUPE_TRY(channel(&QemuParts::control, qemu_fd::kControl));
    DRUPE_TRY(channel(&QemuParts::bulk, qemu_fd::kBulk));
    DRUPE_TRY(channel(&QemuParts::console, qemu_fd::kConsole));
    DRUPE_TRY(channel(&QemuParts::messages, STDERR_FILENO));
    DRUPE_TRY(channel(&QemuParts::report, qemu_fd::kReport));
    if (!spec_.net.valid()) return channel(&QemuParts::spare_net, qemu_fd::kNet, SOCK_DGRAM);
    give(std::move(spec_.net), qemu_fd::kNet);
    return {};
  }

  Status open_files() {
    if (stage_ == LaunchStage::kRestore) give(std::move(*spec_.device_state), qemu_fd::kState);
    if (stage_ == LaunchStage::kBoot) {
      give(std::move(spec_.kernel), qemu_fd::kKernel);
      give(std::move(spec_.initramfs), qemu_fd::kInitramfs);
    }
    if (spec_.memory.delta.valid()) {
      DRUPE_ASSIGN(auto extents, extents_file(spec_.memory.extents));
      give(std::move(extents), qemu_fd::kExtents);
      fds_.push_back(FdMapping{spec_.memory.delta.get(), qemu_fd::kDelta});
    }
    fds_.push_back(FdMapping{spec_.memory.base.get(), qemu_fd::kRam});
    for (std::size_t i = 0; i < spec_.disk.size(); ++i)
      fds_.push_back(FdMapping{spec_.disk[i].fd.get(), qemu_fd::kFirstDisk + static_cast<int>(i)});
    if (options_.accelerator == Accelerator::kKvm) {
      DRUPE_ASSIGN(auto kvm, open_at(AT_FDCWD, "/dev/kvm", O_RDWR));
      give(std::move(kvm), qemu_fd::kKvm);
    }
    return {};
  }

  // Now, because a caller that has confined itself can open nothing below /proc any more. qemu takes a
  // descriptor for writing only if it cannot read.
  Status open_state_file() {
    parts_.state_in = UniqueFd(::memfd_create("drupe-state", MFD_CLOEXEC));
    if (!parts_.state_in.valid()) return fail_sys("Creating a memory file failed", errno);
    DRUPE_ASSIGN(parts_.state_out, open_at(AT_FDCWD, proc_fd_path(parts_.state_in.get()), O_WRONLY));
    return {};
  }

  const QemuOptions& options_;
  LaunchSpec spec_;
  LaunchStage stage_;
  QemuParts parts_;
  std::vector<FdMapping> fds_;
  std::vector<UniqueFd> child_ends_;
};

}  // namespace

LaunchStage stage_of(const LaunchSpec& spec) {
  return spec.device_state ? LaunchStage::kRestore : LaunchStage::kBoot;
}

Result<QemuParts> launch_parts(const QemuOptions& options, LaunchSpec spec, LaunchStage stage,
                               std::vector<pid_t>* failed_siblings) {
  return Launch(options, std::move(spec), stage).run(failed_siblings);
}

}  // namespace drupe
