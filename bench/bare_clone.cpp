#include "bare_clone.h"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/files.h"
#include "shim/launcher.h"

namespace drupe::bench {
namespace {

constexpr std::chrono::seconds kLimit{60};

/// Passes a command's output on and keeps its exit code.
class CommandStream : public GuestStream {
 public:
  CommandStream(GuestLink& link, std::string& out) : link_(link), out_(out) {}
  void on_guest_frame(const Frame& frame) override {
    if (frame.type == FrameType::kData) {
      out_.append(as_text(frame.payload));
      static_cast<void>(
          link_.grant(frame.id, frame.channel, static_cast<std::uint32_t>(frame.payload.size())));
    } else if (frame.type == FrameType::kExit) {
      ended_ = true;
      if (const auto facts = ExitFacts::decode(frame.payload)) code_ = facts->exit_code;
    } else if (frame.type == FrameType::kReset) {
      ended_ = true;
    }
  }
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] int code() const { return code_; }

 private:
  GuestLink& link_;
  std::string& out_;
  bool ended_ = false;
  int code_ = -1;
};

Result<LaunchSpec> launch_spec(const CloneFiles& files, UniqueFd& net_peer) {
  LaunchSpec spec;
  spec.shape.memory_mib = files.memory_mib;
  DRUPE_ASSIGN(spec.memory.base, open_at(AT_FDCWD, files.ram, O_RDONLY));
  DRUPE_ASSIGN(spec.device_state, open_at(AT_FDCWD, files.state, O_RDONLY));
  DiskNode image{UniqueFd(), DiskFormat::kRaw};
  DRUPE_ASSIGN(image.fd, open_at(AT_FDCWD, files.image, O_RDONLY));
  DiskNode node;
  DRUPE_ASSIGN(node.fd, open_at(AT_FDCWD, files.node, O_RDONLY));
  DRUPE_ASSIGN(spec.disk_bytes, disk_node_bytes(node.fd.get(), DiskFormat::kQcow2));
  DiskNode top;
  DRUPE_ASSIGN(top.fd, open_at(AT_FDCWD, files.top, O_RDWR | O_CREAT | O_TRUNC));
  ::unlink(files.top.c_str());
  DRUPE_TRY(write_empty_qcow2(top.fd.get(), spec.disk_bytes));
  spec.disk.push_back(std::move(image));
  spec.disk.push_back(std::move(node));
  spec.disk.push_back(std::move(top));
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) != 0)
    return fail_sys("Creating a socket pair failed", errno);
  spec.net = UniqueFd(pair[0]);
  net_peer = UniqueFd(pair[1]);
  spec.mac = {0x02, 'd', 'r', 'u', 'p', 'e'};
  return spec;
}

}  // namespace

Result<std::unique_ptr<BareClone>> BareClone::start(EventLoop& loop, Hypervisor& hypervisor,
                                                    const CloneFiles& files) {
  const Deadline deadline = Clock::now() + kLimit;
  std::unique_ptr<BareClone> clone(new BareClone(loop));
  DRUPE_ASSIGN(LaunchSpec spec, launch_spec(files, clone->net_peer_));
  DRUPE_ASSIGN(clone->machine_, hypervisor.launch(loop, std::move(spec), deadline));
  DRUPE_ASSIGN(clone->link_,
               GuestLink::create(loop, clone->machine_->control_fd(), clone->machine_->bulk_fd(), {}));
  DRUPE_TRY(clone->link_->handshake(new_epoch(), deadline));
  DRUPE_TRY(clone->link_->call(RequestKind::kThaw, {}, deadline));
  return clone;
}

Status BareClone::ping() {
  DRUPE_TRY(link_->call(RequestKind::kPing, "p", Clock::now() + kLimit));
  return {};
}

Result<int> BareClone::run(const std::vector<std::string>& argv, std::string& out) {
  OpenRequest request;
  request.exec.exec_id = "bare";
  request.exec.argv = argv;
  CommandStream stream(*link_, out);
  DRUPE_TRY(link_->open(request.encode(), stream));
  DRUPE_ASSIGN(const bool came,
               loop_.run_until([&] { return stream.ended() || link_->broken(); }, Clock::now() + kLimit));
  if (!came || !stream.ended()) return fail(ErrorCode::kTimeout, "The clone did not run the command");
  return stream.code();
}

}  // namespace drupe::bench
