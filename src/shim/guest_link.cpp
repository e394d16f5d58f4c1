#include "shim/guest_link.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>

#include "base/log.h"
#include "protocol/credit.h"

namespace drupe {
namespace {

// Opens take no credit, so they are refused while so much waits for the guest to read.
constexpr std::size_t kOpenBacklog = 8 * 1024 * 1024;
// Held back around a save: clients are not read then, so only a guest that never answers gets here.
constexpr std::size_t kMaxHeld = 16 * 1024 * 1024;

std::unexpected<Error> hostile(std::string_view what) {
  return fail(ErrorCode::kIntegrity, "The guest broke the protocol: " + std::string(what));
}

Error gone() {
  return Error{ErrorCode::kVmLost, "The sandbox's machine has ended", {}, 0};
}

}  // namespace

Result<std::unique_ptr<GuestLink>> GuestLink::create(EventLoop& loop, int control_fd, int bulk_fd,
                                                     Callbacks callbacks) {
  std::unique_ptr<GuestLink> link(new GuestLink(loop, std::move(callbacks)));
  DRUPE_TRY(link->make_ports(control_fd, bulk_fd, link->control_, link->bulk_));
  return link;
}

Status GuestLink::make_ports(int control_fd, int bulk_fd, std::unique_ptr<Port>& control,
                             std::unique_ptr<Port>& bulk) {
  ++port_serial_;
  DRUPE_ASSIGN(control, make_port(control_fd, [this](const Frame& frame) { return on_control(frame); }));
  DRUPE_ASSIGN(bulk, make_port(bulk_fd, [this](const Frame& frame) { return on_bulk(frame); }));
  return {};
}

Result<std::unique_ptr<Port>> GuestLink::make_port(int fd, std::function<Status(const Frame&)> on_frame) {
  UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) return fail_sys("Duplicating a port of the guest failed", errno);
  Port::Callbacks callbacks;
  callbacks.on_frame = std::move(on_frame);
  callbacks.on_broken = [this, serial = port_serial_](const Error& error) {
    if (!on_trial(serial)) return on_port_broken(error);
    trial_->broken = error;
  };
  callbacks.on_marker = [this, serial = port_serial_](std::uint64_t) {
    if (on_trial(serial)) adopt_trial();
    on_marker();
  };
  DRUPE_ASSIGN(auto port, Port::create(loop_, std::move(own), Port::Options{}, std::move(callbacks)));
  // Until the first handshake nothing that comes is a frame.
  port->await_marker(~0ULL);
  return port;
}

// --- epochs
// ------------------------------------------------------------------------------------------------------------

void GuestLink::begin_handshake(std::uint64_t epoch) {
  if (epoch != epoch_) {
    held_control_.clear();
    held_bulk_.clear();
  }
  epoch_ = epoch;
  markers_awaited_ = 2;
  for (Port* port : {control_.get(), bulk_.get()}) {
    port->await_marker(epoch);
    port->send_marker(epoch);
  }
}

void GuestLink::on_marker() {
  if (markers_awaited_ == 0 || --markers_awaited_ != 0 || !freeze_ || !freeze_->abandoned) return;
  freeze_.reset();
  release_control();
  request(static_cast<std::uint16_t>(RequestKind::kThaw), {}, [this](const Result<std::string>& thawed) {
    release_bulk();
    if (!thawed)
      log(LogLevel::kWarning, "Thawing the guest after a late freeze failed: " + thawed.error().message);
  });
}

Status GuestLink::handshake(std::uint64_t epoch, Deadline deadline) {
  DRUPE_TRY(exchange_markers(epoch, deadline));
  release_control();
  release_bulk();
  return {};
}

Status GuestLink::exchange_markers(std::uint64_t epoch, Deadline deadline) {
  freeze_.reset();
  begin_handshake(epoch);
  return await_markers(deadline);
}

Status GuestLink::await_markers(Deadline deadline) {
  DRUPE_ASSIGN(const bool done,
               loop_.run_until([this] { return broken_ || markers_awaited_ == 0; }, deadline));
  if (broken_) return std::unexpected(gone());
  if (!done)
    return fail(ErrorCode::kTimeout, "The guest's agent did not answer in time",
                "The machine may be overloaded; try again.");
  return {};
}

void GuestLink::release_control() {
  hold_control_ = false;
  control_->send_raw(std::exchange(held_control_, {}));
}

void GuestLink::release_bulk() {
  hold_bulk_ = false;
  bulk_->send_raw(std::exchange(held_bulk_, {}));
}

Status GuestLink::freeze(std::chrono::milliseconds work_deadline, Deadline deadline) {
  if (broken_) return std::unexpected(gone());
  if (hold_bulk_) return fail(ErrorCode::kBusy, "The guest is still busy with an earlier save");
  moved_ = reopened_ = false;
  freeze_.emplace();
  freeze_->barrier = next_barrier_++;
  send_bulk(FrameType::kBarrier, Channel::kStdin, freeze_->barrier, {});
  FreezeRequest body;
  body.barrier = freeze_->barrier;
  body.deadline_ms = static_cast<std::uint32_t>(work_deadline.count());
  request(static_cast<std::uint16_t>(RequestKind::kFreeze), body.encode(), [this](Result<std::string> reply) {
    if (!freeze_) return;
    freeze_->reply = std::move(reply);
    if (freeze_->abandoned) on_late_freeze();
  });
  hold_control_ = hold_bulk_ = true;
  const auto settled = [this] {
    return broken_ || (freeze_->reply && (!*freeze_->reply || freeze_->barrier_came));
  };
  DRUPE_ASSIGN(const bool in_time, loop_.run_until(settled, deadline));
  if (broken_) return std::unexpected(gone());
  if (!in_time) {
    freeze_->abandoned = true;
    return fail(ErrorCode::kTimeout, "The guest's agent did not confirm that its work stands still",
                "The sandbox goes on as before; try again when it is less busy.");
  }
  if (*freeze_->reply) return {};
  Error error = std::move(*freeze_->reply).error();
  freeze_.reset();
  release_control();
  release_bulk();
  return std::unexpected(std::move(error));
}

void GuestLink::on_late_freeze() {
  if (*freeze_->reply) return begin_handshake(epoch_);
  freeze_.reset();
  release_control();
  release_bulk();
}

Status GuestLink::move(int control_fd, int bulk_fd, Deadline deadline) {
  if (broken_) return std::unexpected(gone());
  trial_.emplace();
  auto made = make_ports(control_fd, bulk_fd, trial_->control, trial_->bulk);
  if (!made) {
    trial_.reset();
    return made;
  }
  trial_->serial = port_serial_;
  for (Port* port : {trial_->control.get(), trial_->bulk.get()}) {
    port->await_marker(epoch_);
    port->send_marker(epoch_);
  }
  const auto waited =
      loop_.run_until([this] { return broken_ || !trial_ || trial_->broken.has_value(); }, deadline);
  if (moved_ && waited) return {};
  Error error{ErrorCode::kTimeout, "The guest's agent did not answer in its new machine", {}, 0};
  if (trial_ && trial_->broken) error = std::move(*trial_->broken).in("The guest's new machine has ended");
  trial_.reset();
  if (!waited) return std::unexpected(waited.error());
  if (broken_) return std::unexpected(gone());
  return std::unexpected(std::move(error));
}

// Inside a callback of the port that has answered; the other one's marker is still awaited.
void GuestLink::adopt_trial() {
  Trial trial = std::move(*trial_);
  trial_.reset();
  control_ = std::move(trial.control);
  bulk_ = std::move(trial.bulk);
  freeze_.reset();
  markers_awaited_ = 2;
  moved_ = true;
  if (trial.broken) on_port_broken(*trial.broken);
}

Status GuestLink::reopen(Deadline deadline) {
  if (!moved_) DRUPE_TRY(exchange_markers(epoch_, deadline));
  if (moved_) DRUPE_TRY(await_markers(deadline));
  reopened_ = true;
  release_control();
  return {};
}

Status GuestLink::thaw(Deadline deadline) {
  if (!reopened_) DRUPE_TRY(reopen(deadline));
  // The guest opens no stream before it has thawed, so what clients sent meanwhile waits for that too.
  auto thawed = call(RequestKind::kThaw, {}, deadline);
  release_bulk();
  if (!thawed) return std::unexpected(std::move(thawed).error());
  return {};
}

// --- out
// ---------------------------------------------------------------------------------------------------------------

void GuestLink::send_control(std::uint32_t id, std::string_view payload) {
  if (!hold_control_) return control_->send(FrameType::kRequest, Channel::kStdin, id, payload);
  append_frame(held_control_, FrameType::kRequest, Channel::kStdin, id, payload);
  check_held();
}

void GuestLink::send_bulk(FrameType type, Channel channel, std::uint32_t id, std::string_view payload) {
  if (!hold_bulk_) return bulk_->send(type, channel, id, payload);
  append_frame(held_bulk_, type, channel, id, payload);
  check_held();
}

void GuestLink::check_held() {
  if (held_control_.size() + held_bulk_.size() > kMaxHeld)
    on_port_broken(Error{ErrorCode::kLimit, "The guest's agent does not answer", {}, 0});
}

void GuestLink::request(std::uint16_t kind, std::string_view body, Reply done) {
  if (broken_) {
    loop_.defer([done = std::move(done)] { done(std::unexpected(gone())); });
    return;
  }
  const std::uint32_t id = next_request_++;
  requests_[id] = std::move(done);
  send_control(id, encode_request(kind, body));
}

Result<std::string> GuestLink::call(RequestKind kind, std::string_view body, Deadline deadline) {
  // Shared: after the deadline the reply finds nobody waiting.
  auto reply = std::make_shared<std::optional<Result<std::string>>>();
  request(static_cast<std::uint16_t>(kind), body,
          [reply](Result<std::string> result) { *reply = std::move(result); });
  DRUPE_ASSIGN(const bool came, loop_.run_until([&] { return reply->has_value(); }, deadline));
  if (!came) return fail(ErrorCode::kTimeout, "The guest's agent did not answer in time", "Try again.");
  return std::move(**reply);
}

Result<std::uint32_t> GuestLink::open(std::string_view encoded, GuestStream& stream) {
  if (broken_) return std::unexpected(gone());
  if (streams_.size() >= kMaxStreams)
    return fail(ErrorCode::kLimit, "The sandbox has " + std::to_string(kMaxStreams) + " open streams already",
                "End some commands or transfers first.");
  if (bulk_->queued() + held_bulk_.size() > kOpenBacklog)
    return fail(ErrorCode::kBusy, "The guest is far behind with what was sent to it",
                "Try again in a moment.");
  const std::uint32_t id = next_stream_++;
  streams_[id].stream = &stream;
  std::string frames;
  append_open_frames(frames, id, encoded);
  if (hold_bulk_) {
    held_bulk_.append(frames);
    check_held();
  } else {
    bulk_->send_raw(frames);
  }
  return id;
}

Status GuestLink::send_data(std::uint32_t id, std::string_view bytes) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return {};
  if (bytes.size() > found->second.may_send)
    return fail(ErrorCode::kIntegrity, "More was sent to a stream than its receiver had granted");
  found->second.may_send -= static_cast<std::uint32_t>(bytes.size());
  send_bulk(FrameType::kData, Channel::kStdin, id, bytes);
  return {};
}

Status GuestLink::grant(std::uint32_t id, Channel channel, std::uint32_t bytes) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return {};
  auto& granted = found->second.granted.at(static_cast<std::size_t>(channel));
  if (bytes > kMaxCredit - granted)
    return fail(ErrorCode::kIntegrity, "More credit was granted than the protocol allows");
  granted += bytes;
  send_bulk(FrameType::kCredit, channel, id, encode_credit(bytes));
  return {};
}

void GuestLink::send(FrameType type, std::uint32_t id, std::string_view payload) {
  if (streams_.contains(id)) send_bulk(type, Channel::kStdin, id, payload);
}

void GuestLink::reset(std::uint32_t id, std::string_view reason) {
  if (streams_.erase(id) == 0 || broken_) return;
  send_bulk(FrameType::kReset, Channel::kStdin, id, reason.substr(0, 1024));
}

std::size_t GuestLink::may_send(std::uint32_t id) const {
  const auto found = streams_.find(id);
  return found == streams_.end() ? 0 : found->second.may_send;
}

// --- in
// ----------------------------------------------------------------------------------------------------------------

Status GuestLink::on_control(const Frame& frame) {
  if (frame.type == FrameType::kEvent) {
    DRUPE_ASSIGN(const RequestView event, decode_request(frame.payload));
    if (callbacks_.on_event) callbacks_.on_event(static_cast<EventKind>(event.kind), as_text(event.body));
    return {};
  }
  if (frame.type != FrameType::kReply) return hostile("a frame of the wrong kind on its control port");
  const auto found = requests_.find(frame.id);
  if (found == requests_.end()) return hostile("a reply to a request that was not made");
  const Reply done = std::move(found->second);
  requests_.erase(found);
  done(decode_reply(frame.payload));
  return {};
}

Status GuestLink::on_bulk(const Frame& frame) {
  if (frame.type == FrameType::kBarrier) {
    if (frame.id == 0 || frame.id >= next_barrier_) return hostile("a barrier that nobody asked for");
    // That of a freeze that failed may come late and means nothing.
    if (freeze_ && freeze_->barrier == frame.id) freeze_->barrier_came = true;
    return {};
  }
  const auto found = streams_.find(frame.id);
  if (found != streams_.end()) return on_stream_frame(found->second, frame);
  // A stream that this side has just reset may still have frames in flight; one that never was cannot.
  if (frame.id >= next_stream_ || frame.id == 0) return hostile("a frame of a stream that was never opened");
  return {};
}

Status GuestLink::on_stream_frame(Entry& entry, const Frame& frame) {
  GuestStream* stream = entry.stream;
  switch (frame.type) {
    case FrameType::kData: {
      auto& granted = entry.granted.at(static_cast<std::size_t>(frame.channel));
      if (frame.channel == Channel::kStdin || frame.payload.empty() || frame.payload.size() > granted)
        return hostile("more output than was granted");
      granted -= static_cast<std::uint32_t>(frame.payload.size());
      break;
    }
    case FrameType::kCredit: {
      DRUPE_ASSIGN(const std::uint32_t bytes, decode_credit(frame.payload));
      if (frame.channel != Channel::kStdin || bytes > kMaxCredit - entry.may_send)
        return hostile("too much credit");
      entry.may_send += bytes;
      break;
    }
    case FrameType::kExit:
    case FrameType::kReset:
      streams_.erase(frame.id);
      break;
    case FrameType::kOpened:
    case FrameType::kEof:
      break;
    default:
      return hostile("a frame of the wrong kind on its bulk port");
  }
  stream->on_guest_frame(frame);
  return {};
}

void GuestLink::on_port_broken(const Error& error) {
  if (broken_) return;
  broken_ = true;
  auto requests = std::exchange(requests_, {});
  for (auto& [id, done] : requests) done(std::unexpected(gone()));
  const bool ports_gone = error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kHost;
  if (callbacks_.on_broken) callbacks_.on_broken(error, !ports_gone);
}

}  // namespace drupe
