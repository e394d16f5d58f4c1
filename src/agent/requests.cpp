// Requests of the control port.
#include <cerrno>

#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "agent/network.h"
#include "agent/own_pages.h"
#include "agent/server.h"

namespace drupe::agent {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMaxPing = 1024;
// From <linux/fs.h> and fs/ext4/ext4.h.
constexpr unsigned long kDeviceSize = _IOR(0x12, 114, std::size_t);
constexpr unsigned long kResizeExt4 = _IOW('f', 16, std::uint64_t);
constexpr int kResizeWaitMs = 5000;

Result<std::string> without_value(const Status& status) {
  if (!status) return std::unexpected(status.error());
  return std::string();
}

Result<std::uint64_t> device_size(int device) {
  std::uint64_t bytes = 0;
  if (::ioctl(device, kDeviceSize, &bytes) != 0)
    return fail_sys("Reading the size of the disk failed", errno);
  return bytes;
}

/// Waits until the kernel has noticed that the disk has `wanted` bytes; it announces the change.
Result<std::uint64_t> wait_for_size(int device, std::uint64_t wanted) {
  const UniqueFd news(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = 1;
  ::bind(news.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  while (true) {
    DRUPE_ASSIGN(const std::uint64_t bytes, device_size(device));
    if (bytes >= wanted) return bytes;
    pollfd waiting{news.get(), POLLIN, 0};
    if (::poll(&waiting, 1, kResizeWaitMs) <= 0)
      return fail(ErrorCode::kTimeout, "The guest's kernel does not see the larger disk");
    char text[4096];
    [[maybe_unused]] const ssize_t got = ::recv(news.get(), text, sizeof text, 0);
  }
}

Result<std::string> grow(const Work& work, int device, std::uint64_t wanted) {
  DRUPE_ASSIGN(const std::uint64_t bytes, wait_for_size(device, wanted));
  struct statfs info{};
  const UniqueFd root(::openat(work.root(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (::fstatfs(root.get(), &info) != 0) return fail_sys("Reading the file system's size failed", errno);
  std::uint64_t blocks = bytes / static_cast<std::uint64_t>(info.f_bsize);
  if (::ioctl(root.get(), kResizeExt4, &blocks) != 0)
    return fail_sys("Growing the root file system failed", errno);
  return std::string();
}

}  // namespace

void Server::reply(std::uint32_t id, const Result<std::string>& value) {
  std::string frame;
  append_frame(frame, FrameType::kReply, Channel::kStdin, id,
               value ? encode_reply(*value) : encode_error_reply(value.error()));
  if (control_quiet_)
    late_replies_.push_back(std::move(frame));
  else
    control_->send_raw(frame);
}

void Server::reply_status(std::uint32_t id, const Status& value) {
  if (value) return reply(id, std::string());
  reply(id, std::unexpected(value.error()));
}

void Server::send_event(EventKind kind, std::string_view text) {
  std::string body = ByteWriter().number(static_cast<std::uint16_t>(kind)).take();
  body.append(text);
  std::string frame;
  append_frame(frame, FrameType::kEvent, Channel::kStdin, 0, body);
  if (control_quiet_)
    late_replies_.push_back(std::move(frame));
  else
    control_->send_raw(frame);
}

Status Server::on_request(const Frame& frame) {
  if (frame.type != FrameType::kRequest)
    return fail(ErrorCode::kIntegrity, "Only requests come on the control port");
  DRUPE_ASSIGN(const RequestView request, decode_request(frame.payload));
  const std::uint32_t id = frame.id;
  // A request that does not decode is answered, not punished: frames stay in step.
  const auto with = [&]<class M>(Result<M> message, auto handle) {
    if (!message) return reply(id, std::unexpected(std::move(message).error()));
    handle(*message);
  };
  switch (static_cast<RequestKind>(request.kind)) {
    case RequestKind::kPing:
      if (request.body.size() > kMaxPing)
        reply(id, fail(ErrorCode::kInvalidArgument, "A ping carries at most 1024 bytes"));
      else
        reply(id, std::string(as_text(request.body)));
      break;
    case RequestKind::kHello:
      reply(id, hello());
      break;
    case RequestKind::kSetUp:
      with(SetUpRequest::decode(request.body), [&](const SetUpRequest& m) { set_up(id, m); });
      break;
    case RequestKind::kSync:
      sync(id);
      break;
    case RequestKind::kFlush:
      flush(id);
      break;
    case RequestKind::kFreeze:
      with(FreezeRequest::decode(request.body), [&](const FreezeRequest& m) { freeze(id, m); });
      break;
    case RequestKind::kThaw:
      thaw(id);
      break;
    case RequestKind::kGrowRoot:
      grow_root(id, request.body);
      break;
    case RequestKind::kStats:
      reply(id, stats());
      break;
    case RequestKind::kProcesses:
      list_processes(id);
      break;
    case RequestKind::kSignalExec:
      with(SignalExecRequest::decode(request.body),
           [&](const SignalExecRequest& m) { reply_status(id, signal_exec(m)); });
      break;
    case RequestKind::kShutdown:
      with(ShutdownRequest::decode(request.body), [&](const ShutdownRequest& m) { shut_down(id, m); });
      break;
    case RequestKind::kSetHost:
      with(SetHostRequest::decode(request.body), [&](const SetHostRequest& m) {
        if (!m.hosts.empty())
          if (auto set = work_.names().set_hosts(m.hosts); !set) return reply_status(id, set);
        helpers_.run([this, m] { return without_value(write_host_files(work_, m)); }, milliseconds(0),
                     [this, id](const Result<std::string>& done) { reply(id, done); });
      });
      break;
    case RequestKind::kSetNetwork:
      with(SetNetworkRequest::decode(request.body), [&](const SetNetworkRequest& m) {
        helpers_.run([this, m] { return without_value(set_network(work_, m)); }, milliseconds(0),
                     [this, id](const Result<std::string>& done) { reply(id, done); });
      });
      break;
    default:
      reply(id, fail(ErrorCode::kUnsupported, "This agent does not know the request"));
  }
  return {};
}

Result<std::string> Server::hello() const {
  utsname name{};
  ::uname(&name);
  HelloReply hello;
  hello.agent_version = DRUPE_VERSION;
  hello.kernel_release = name.release;
  // Not from /proc: this is the first request after a restore, and an emulated machine would translate the
  // kernel's code for it first.
  hello.boot_id = work_.boot_id();
  while (!hello.boot_id.empty() && hello.boot_id.back() == '\n') hello.boot_id.pop_back();
  return hello.encode();
}

void Server::set_up(std::uint32_t id, const SetUpRequest& request) {
  // User work may still be frozen, and stays so.
  if (auto repaired = repair_.apply(request); !repaired) return reply_status(id, repaired);
  if (request.new_identity) {
    if (auto set = work_.set_boot_id(new_boot_id()); !set) return reply_status(id, set);
  }
  defaults_ = Defaults{request.default_env, request.default_user, request.default_cwd};
  // Who is resumed has its names already, and has perhaps changed them.
  reply_status(id, request.new_identity ? work_.names().set(request.hostname, request.machine_id) : Status());
}

void Server::freeze(std::uint32_t id, const FreezeRequest& request) {
  if (freezing_id_ != 0 || quiet_)
    return reply(id, fail(ErrorCode::kBusy, "The guest is frozen or about to be"));
  freezing_id_ = id;
  freezing_barrier_ = request.barrier;
  freezer_.freeze(milliseconds(request.deadline_ms), [this, id](const Status& frozen) {
    if (!frozen) {
      freezing_id_ = 0;
      ready_.prepare_later();
      return reply_status(id, frozen);
    }
    quiet_ = true;
    for (auto& [name, job] : execs_) job->pause();
    for (auto& job : tasks_) job->pause();
    try_quiet();
  });
}

/// The second half of a freeze, once user work is frozen and the host's barrier is here, in either order.
void Server::try_quiet() {
  if (!quiet_ || freezing_id_ == 0 || barrier_ != freezing_barrier_) return;
  const std::uint32_t id = std::exchange(freezing_id_, 0);
  bulk_->send(FrameType::kBarrier, Channel::kStdin, freezing_barrier_, {});
  bulk_->when_flushed([this, id] {
    bulk_->await_marker(0);
    reply(id, std::string());
    control_->when_flushed([this] {
      control_->await_marker(0);
      control_quiet_ = true;
    });
  });
}

void Server::thaw(std::uint32_t id) {
  if (auto work = freezer_.thaw(); !work) return reply_status(id, work);
  quiet_ = false;
  barrier_ = freezing_barrier_ = 0;
  resume_jobs();
  ready_.prepare_later();
  reply(id, std::string());
}

void Server::resume_jobs() {
  std::vector<Job*> all;
  for (auto& [name, job] : execs_) all.push_back(job.get());
  for (auto& job : tasks_) all.push_back(job.get());
  // Jobs that end here are destroyed after the current callbacks, so the pointers stay good.
  for (Job* job : all) job->resume();
}

/// With the child that flushes for a freeze: its code is what the freeze needs a moment later.
void Server::flush(std::uint32_t id) {
  auto asked = flusher_.flush([this, id](bool flushed) {
    reply_status(id, flushed ? Status() : fail(ErrorCode::kGuest, "The helper that flushes was killed"));
  });
  if (!asked) reply_status(id, asked);
}

/// Comes before saves for others, so what is saved shall have a child that is ready, not one on its way, and
/// an agent that shares no pages with it.
void Server::sync(std::uint32_t id) {
  ready_.prepare();
  ready_.when_settled([this, id] {
    helpers_.run(
        [] {
          ::sync();
          return Result<std::string>(std::string());
        },
        milliseconds(0),
        [this, id](const Result<std::string>& done) {
          own_pages();
          reply(id, done);
        });
  });
}

std::string Server::stats() const {
  GuestStats stats = collect_stats(work_);
  if (ready_.cgroup() != nullptr && stats.processes > 0) --stats.processes;
  return stats.encode();
}

void Server::grow_root(std::uint32_t id, ByteView body) {
  ByteReader reader(body);
  const std::uint64_t wanted = body.empty() ? 0 : reader.number<std::uint64_t>();
  if (!reader.done()) return reply(id, fail(ErrorCode::kIntegrity, "A grow message is malformed"));
  helpers_.run([this, wanted] { return grow(work_, devices_.disk.get(), wanted); }, milliseconds(0),
               [this, id](const Result<std::string>& done) { reply(id, done); });
}

Status Server::signal_exec(const SignalExecRequest& request) {
  const auto found = execs_.find(request.exec_id);
  if (found == execs_.end() || found->second->finished())
    return fail(ErrorCode::kNotFound, "There is no running command with the id \"" + request.exec_id + "\"");
  found->second->signal(request.signal, request.tree);
  return {};
}

void Server::list_processes(std::uint32_t id) {
  std::map<std::string, std::string> names;
  for (const auto& [name, job] : execs_)
    if (job->cgroup() != nullptr) names.emplace(job->cgroup()->name, name);
  const std::string hidden = ready_.cgroup() == nullptr ? std::string() : ready_.cgroup()->name;
  helpers_.run([names = std::move(names),
                hidden] { return Result<std::string>(collect_processes(names, hidden).encode()); },
               milliseconds(10'000), [this, id](const Result<std::string>& done) { reply(id, done); });
}

}  // namespace drupe::agent
