#include "raw_port.h"

#include <cerrno>
#include <vector>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/files.h"
#include "own_initramfs.h"

namespace drupe::bench {
namespace {

constexpr std::size_t kBlock = 65536;
constexpr off_t kMib = 1 << 20;
constexpr std::uint32_t kMemoryMib = 256;
constexpr std::chrono::seconds kLimit{300};

/// A new file under `scratch` that nobody can name any more.
Result<UniqueFd> sized_file(const std::string& scratch, off_t bytes) {
  DRUPE_ASSIGN(auto fd, open_at(AT_FDCWD, scratch, O_TMPFILE | O_RDWR));
  if (::ftruncate(fd.get(), bytes) != 0) return fail_sys("Sizing a file failed", errno);
  return fd;
}

Result<UniqueFd> read_only(const UniqueFd& fd) {
  return open_at(AT_FDCWD, proc_fd_path(fd.get()), O_RDONLY);
}

Result<LaunchSpec> make_spec(const RawPort::Files& files) {
  LaunchSpec spec;
  spec.shape.memory_mib = kMemoryMib;
  DRUPE_ASSIGN(spec.kernel, open_at(AT_FDCWD, files.guest_dir + "/vmlinux", O_RDONLY));
  DRUPE_ASSIGN(const std::string archive, own_initramfs(files.guest_dir, files.init));
  DRUPE_ASSIGN(const UniqueFd archive_file, sized_file(files.scratch, 0));
  DRUPE_TRY(write_all(archive_file.get(), archive));
  DRUPE_ASSIGN(spec.initramfs, read_only(archive_file));
  DRUPE_ASSIGN(const UniqueFd memory, sized_file(files.scratch, kMemoryMib * kMib));
  DRUPE_ASSIGN(spec.memory.base, read_only(memory));
  DRUPE_ASSIGN(const UniqueFd disk, sized_file(files.scratch, 64 * kMib));
  DiskNode bottom{UniqueFd(), DiskFormat::kRaw};
  DRUPE_ASSIGN(bottom.fd, read_only(disk));
  DiskNode top;
  DRUPE_ASSIGN(top.fd, sized_file(files.scratch, 0));
  spec.disk_bytes = static_cast<std::uint64_t>(64 * kMib);
  DRUPE_TRY(write_empty_qcow2(top.fd.get(), spec.disk_bytes));
  spec.disk.push_back(std::move(bottom));
  spec.disk.push_back(std::move(top));
  int pair[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) != 0)
    return fail_sys("Creating a socket pair failed", errno);
  spec.net = UniqueFd(pair[0]);
  ::close(pair[1]);
  spec.mac = {0x02, 'b', 'e', 'n', 'c', 'h'};
  return spec;
}

}  // namespace

Result<std::unique_ptr<RawPort>> RawPort::boot(EventLoop& loop, Hypervisor& hypervisor, const Files& files) {
  std::unique_ptr<RawPort> port(new RawPort(loop));
  DRUPE_ASSIGN(LaunchSpec spec, make_spec(files));
  DRUPE_ASSIGN(port->machine_, hypervisor.launch(loop, std::move(spec), Clock::now() + kLimit));
  DRUPE_TRY(port->hear("ready"));
  return port;
}

Status RawPort::tell(const std::string& line) {
  const std::string text = line + "\n";
  if (::send(machine_->control_fd(), text.data(), text.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(text.size()))
    return fail_sys("Telling the guest failed", errno);
  return {};
}

Status RawPort::hear(const std::string& wanted) {
  std::string line;
  DRUPE_TRY(loop_.watch(machine_->control_fd(), EPOLLIN, [&](std::uint32_t) {
    char c = 0;
    while (::read(machine_->control_fd(), &c, 1) == 1) line.push_back(c);
  }));
  const auto came =
      loop_.run_until([&] { return line.find('\n') != std::string::npos; }, Clock::now() + kLimit);
  loop_.unwatch(machine_->control_fd());
  if (!came || line != wanted + "\n")
    return fail(ErrorCode::kGuest, "The guest said '" + line + "'; its console: " + machine_->console_tail());
  return {};
}

Result<double> RawPort::receive(std::uint32_t mib) {
  std::vector<char> block(kBlock);
  const std::uint64_t wanted = std::uint64_t{mib} << 20;
  std::uint64_t got = 0;
  DRUPE_TRY(loop_.watch(machine_->bulk_fd(), EPOLLIN, [&](std::uint32_t) {
    const ssize_t size = ::read(machine_->bulk_fd(), block.data(), block.size());
    if (size > 0) got += static_cast<std::uint64_t>(size);
  }));
  const auto begun = Clock::now();
  const auto told = tell("send " + std::to_string(mib));
  const auto came = loop_.run_until([&] { return got >= wanted; }, Clock::now() + kLimit);
  const std::chrono::duration<double> took = Clock::now() - begun;
  loop_.unwatch(machine_->bulk_fd());
  DRUPE_TRY(told);
  if (!came || !*came) return fail(ErrorCode::kTimeout, "The raw copy from the guest took too long");
  DRUPE_TRY(hear("done"));
  return mib / took.count();
}

Result<double> RawPort::send(std::uint32_t mib) {
  const std::vector<char> block(kBlock, 's');
  std::uint64_t left = std::uint64_t{mib} << 20;
  const auto begun = Clock::now();
  DRUPE_TRY(tell("receive " + std::to_string(mib)));
  DRUPE_TRY(loop_.watch(machine_->bulk_fd(), EPOLLOUT, [&](std::uint32_t) {
    const ssize_t size =
        ::send(machine_->bulk_fd(), block.data(), std::min<std::uint64_t>(left, block.size()), MSG_NOSIGNAL);
    if (size > 0) left -= static_cast<std::uint64_t>(size);
    if (left == 0) loop_.unwatch(machine_->bulk_fd());
  }));
  DRUPE_TRY(hear("done"));
  const std::chrono::duration<double> took = Clock::now() - begun;
  return mib / took.count();
}

}  // namespace drupe::bench
