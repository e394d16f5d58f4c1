#include "agent/server.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

namespace drupe::agent {
namespace {

constexpr std::size_t kMaxStreams = 1024;

}  // namespace

Server::Server(EventLoop& loop, Cgroups cgroups, Work work, KernelRepair repair, Devices devices)
    : loop_(loop),
      cgroups_(std::move(cgroups)),
      work_(std::move(work)),
      repair_(std::move(repair)),
      devices_(std::move(devices)),
      helpers_(loop_, work_),
      flusher_(loop_, work_),
      freezer_(loop_, flusher_, cgroups_),
      ready_(loop_, work_, cgroups_,
             [this] { return !quiet_ && freezing_id_ == 0 && !ended_ && !shutting_down_; }) {}

Server::~Server() = default;

Status Server::run() {
  DRUPE_TRY(open_control());
  DRUPE_TRY(open_bulk());
  watch_init();
  if (auto started = flusher_.start(); !started) say(started.error().message);
  ready_.prepare();
  return loop_.run();
}

Status Server::open_control() {
  Port::Callbacks callbacks;
  callbacks.on_frame = [this](const Frame& frame) { return on_request(frame); };
  callbacks.on_marker = [this](std::uint64_t epoch) { on_marker(*control_, epoch); };
  callbacks.on_desync = [this](const Error& error) { desynced("control", error); };
  callbacks.on_broken = [this](const Error& error) {
    say("control port: " + error.message);
    start_over(&Server::open_control);
  };
  DRUPE_ASSIGN(control_, Port::create(loop_, UniqueFd(::fcntl(devices_.control.get(), F_DUPFD_CLOEXEC, 0)),
                                      {.hangup_is_end = false}, std::move(callbacks)));
  control_->await_marker(0);
  return {};
}

Status Server::open_bulk() {
  Port::Callbacks callbacks;
  callbacks.on_frame = [this](const Frame& frame) { return on_bulk(frame); };
  callbacks.on_marker = [this](std::uint64_t epoch) { on_marker(*bulk_, epoch); };
  callbacks.on_room = [this] { on_room(); };
  callbacks.on_desync = [this](const Error& error) { desynced("bulk", error); };
  callbacks.on_broken = [this](const Error& error) {
    say("bulk port: " + error.message);
    start_over(&Server::open_bulk);
  };
  DRUPE_ASSIGN(bulk_, Port::create(loop_, UniqueFd(::fcntl(devices_.bulk.get(), F_DUPFD_CLOEXEC, 0)),
                                   {.hangup_is_end = false}, std::move(callbacks)));
  bulk_->await_marker(0);
  return {};
}

/// After bytes that are no frames: nothing of this epoch goes on. The other port may have the next marker
/// already.
void Server::desynced(const char* port, const Error& error) {
  say(std::string(port) + " port: " + error.message);
  new_epoch(0);
}

/// After a host that did not read for too long: the port waits for the next marker.
void Server::start_over(Status (Server::*open)()) {
  loop_.defer([this, open] {
    new_epoch(0);
    if (auto opened = (this->*open)(); !opened) say(opened.error().message);
  });
}

void Server::on_marker(Port& port, std::uint64_t epoch) {
  if (epoch != epoch_) new_epoch(epoch);
  port.send_marker(epoch);
  if (&port != control_.get()) return;
  control_quiet_ = false;
  for (const auto& payload : std::exchange(late_replies_, {})) control_->send_raw(payload);
}

/// Streams are of an epoch; processes are not.
void Server::new_epoch(std::uint64_t epoch) {
  epoch_ = epoch;
  auto old = std::exchange(streams_, {});
  opening_bytes_ = 0;
  for (auto& [id, stream] : old) {
    if (stream.job == nullptr) continue;
    if (stream.job->is_task())
      stream.job->reset_by_host();
    else
      stream.job->detach();
  }
  late_replies_.clear();
}

void Server::on_room() {
  if (quiet_) return;
  // A job may end, and be forgotten, while it pumps.
  std::vector<std::uint32_t> ids;
  for (const auto& [id, stream] : streams_)
    if (stream.job != nullptr) ids.push_back(id);
  for (const std::uint32_t id : ids) {
    const auto found = streams_.find(id);
    if (found != streams_.end() && found->second.job != nullptr) found->second.job->pump();
  }
}

Status Server::on_bulk(const Frame& frame) {
  if (frame.type == FrameType::kBarrier) {
    barrier_ = frame.id;
    try_quiet();
    return {};
  }
  if (frame.type == FrameType::kOpen) {
    if (frame.id == 0 || streams_.contains(frame.id))
      return fail(ErrorCode::kIntegrity, "A stream was opened under a number that is in use");
    if (streams_.size() >= kMaxStreams) {
      refuse(frame.id, Error{ErrorCode::kLimit, "Too many streams are open", "Close some first", 0});
      return {};
    }
    return open_stream(frame);
  }
  const auto found = streams_.find(frame.id);
  if (found == streams_.end()) return {};  // it ended while the frame was on its way
  auto handled = on_stream_frame(found->second, frame);
  if (!handled) reset_stream(frame.id, handled.error());
  return {};
}

Status Server::on_stream_frame(Stream& stream, const Frame& frame) {
  if (stream.opening) {
    if (frame.type == FrameType::kReset) {
      host_reset(frame.id);
      return {};
    }
    if (frame.type != FrameType::kData || frame.channel != Channel::kStdin)
      return fail(ErrorCode::kIntegrity, "A frame came before the open was complete");
    DRUPE_TRY(stream.opening->add(frame.payload));
    if (stream.opening->complete()) start_stream(frame.id);
    return {};
  }
  Job& job = *stream.job;
  switch (frame.type) {
    case FrameType::kData:
      if (frame.channel != Channel::kStdin)
        return fail(ErrorCode::kIntegrity, "Data came on a channel of the guest's");
      return job.on_data(frame.payload);
    case FrameType::kEof:
      return job.on_eof();
    case FrameType::kCredit: {
      DRUPE_ASSIGN(const std::uint32_t bytes, decode_credit(frame.payload));
      return job.on_credit(frame.channel, bytes);
    }
    case FrameType::kSignal: {
      DRUPE_ASSIGN(const SignalPayload payload, decode_signal(frame.payload));
      job.signal(payload.signal, payload.tree);
      return {};
    }
    case FrameType::kResize: {
      DRUPE_ASSIGN(const ResizePayload size, decode_resize(frame.payload));
      job.on_resize(size);
      return {};
    }
    case FrameType::kReset:
      host_reset(frame.id);
      return {};
    default:
      return fail(ErrorCode::kIntegrity, "The host sent a frame that only the guest sends");
  }
}

void Server::drain(UniqueFd fd) {
  const int raw = fd.get();
  auto watched = loop_.watch(raw, EPOLLIN, [this, raw](std::uint32_t) {
    std::array<char, 65536> nobody;
    const ssize_t got = ::read(raw, nobody.data(), nobody.size());
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return;
    loop_.unwatch(raw);
    drains_.erase(raw);
  });
  if (watched) drains_.emplace(raw, std::move(fd));
}

void Server::watch_init() {
  auto watched = loop_.watch(work_.init_pidfd(), EPOLLIN, [this](std::uint32_t) { work_ended(); });
  if (!watched) say(watched.error().message);
}

void Server::work_ended() {
  loop_.unwatch(work_.init_pidfd());
  const Ended ended = reap(work_.init_pidfd());
  ended_ = true;
  if (shutting_down_) return unmount();
  // reboot(2) in a PID namespace ends its init with one of these (pid_namespaces(7)).
  std::string reason = "The guest's init was ended by signal " + std::to_string(ended.signal);
  if (ended.signal == 1) reason = "The guest asked for a reboot";
  if (ended.signal == 2) reason = "The guest asked to be powered off";
  say(reason);
  send_event(EventKind::kWorkEnded, reason);
}

}  // namespace drupe::agent
