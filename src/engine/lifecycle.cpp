#include <algorithm>
#include <cerrno>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "engine/engine_impl.h"
#include "engine/file_lock.h"
#include "engine/names.h"
#include "engine/sandbox_files.h"
#include "shim/client.h"

namespace drupe {
namespace {

constexpr std::chrono::seconds kConnectWait{60};
constexpr std::chrono::milliseconds kConnectPoll{3};
constexpr std::chrono::seconds kPauseLimit{120};
constexpr std::chrono::seconds kUpdateLimit{5};
constexpr std::chrono::seconds kUpdateGrace{5};
/// Beyond the grace that was asked for: syncing and unmounting the guest's disk.
constexpr std::chrono::seconds kStopSlack{60};
constexpr std::chrono::seconds kDiscardLimit{5};
constexpr std::chrono::seconds kDeathWait{10};
constexpr std::chrono::milliseconds kWaitPoll{100};

std::string called(const SandboxRecord& record) {
  return record.name.empty() ? record.id : record.name;
}

/// Process id of whoever listens on the sandbox's socket; the kernel noted it when it began to listen. 0:
/// nobody.
pid_t listener_of(int dir) {
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto place = open_socket_file(dir);
  if (!place) return 0;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = proc_fd_path(place->get());
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (!fd.valid() || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return 0;
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != ::geteuid()) return 0;
  return peer.pid;
}

/// Kills the listener through a pidfd. The pid cannot have been given to another process: the listener lives,
/// since a connection to it has just been made and it alone holds the socket.
void kill_listener(int dir) {
  const pid_t pid = listener_of(dir);
  if (pid <= 0) return;
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (process.valid() && listener_of(dir) == pid)
    ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
}

Result<UniqueFd> wait_for_lock(int dir, std::chrono::milliseconds limit) {
  return lock_file(dir, kLockFile, Clock::now() + limit, "the sandbox");
}

}  // namespace

Result<std::unique_ptr<ShimClient>> EngineImpl::connect(const std::string& id, bool resume_paused) {
  const Deadline deadline = Clock::now() + kConnectWait;
  while (true) {
    DRUPE_ASSIGN(const SandboxInfo info, look_at(id));
    const bool paused = info.record.state == SandboxState::kPaused;
    if (paused && resume_paused) {
      const auto resumed = resume(id, false);
      if (resumed)
        note("The sandbox " + called(info.record) + " was paused; it goes on.");
      else if (resumed.error().code != ErrorCode::kInvalidState)  // else another process was faster
        return std::unexpected(resumed.error());
    } else if (!info.alive || paused) {
      return fail(ErrorCode::kInvalidState,
                  "The sandbox " + called(info.record) + " is not running (" +
                      std::string(to_string(info.record.state)) + ")",
                  (paused ? "drupe resume " : "drupe start ") + called(info.record) + " lets it run.");
    }
    DRUPE_ASSIGN(const UniqueFd dir, home_.open_sandbox(id));
    auto client = ShimClient::connect(*loop_, dir.get());
    if (client || client.error().code == ErrorCode::kPermission || Clock::now() >= deadline) return client;
    std::this_thread::sleep_for(kConnectPoll);  // it starts or ends at this moment
  }
}

Result<std::unique_ptr<ShimClient>> EngineImpl::connect_running(const std::string& id) {
  return connect(id, false);
}

Status EngineImpl::call(const std::string& id, ShimRequest kind, std::string_view body,
                        std::chrono::milliseconds limit) {
  DRUPE_ASSIGN(const auto client, connect_running(id));
  DRUPE_TRY(client->call(static_cast<std::uint16_t>(kind), body, Clock::now() + limit));
  return {};
}

Status EngineImpl::pause(const std::string& id) {
  timings_ = {};
  StageClock clock(timings_);
  reap_children();
  DRUPE_TRY(call(id, ShimRequest::kPause, {}, kPauseLimit));
  clock.mark("pause");
  if (const auto info = look_at(id)) release_promise(home_, id, info->record.shape.memory_mib);
  return {};
}

/// A paused sandbox is stopped by forgetting its memory. `ended` is false when it is in another state.
Status EngineImpl::end_paused(const std::string& id, bool& ended) {
  DRUPE_ASSIGN(Held held, hold(id));
  ended = held.record.state == SandboxState::kPaused;
  if (!ended) return {};
  held.record.state = SandboxState::kExited;
  held.record.cause = EndCause::kStopped;
  held.record.cause_text.clear();
  held.record.finished_ns = realtime_ns();
  forget_memory(held.record);
  DRUPE_TRY(write_record(held.dir.get(), held.record));
  sweep_files(held.dir.get(), held.record);
  return {};
}

Status EngineImpl::stop(const std::string& id, int signal, std::chrono::milliseconds grace) {
  reap_children();
  DRUPE_ASSIGN(const SandboxInfo info, look_at(id));
  if (info.record.state == SandboxState::kPaused) {
    bool ended = false;
    auto stopped = end_paused(id, ended);
    if (ended || (!stopped && stopped.error().code != ErrorCode::kInvalidState)) {
      if (stopped && info.record.auto_remove) static_cast<void>(mend_sandbox(home_, id));
      return stopped;
    }
  } else if (!info.alive) {
    return {};
  }
  StopRequest request;
  request.signal = signal;
  request.grace_ms = static_cast<std::uint32_t>(std::clamp<std::int64_t>(grace.count(), 0, 24 * 3600 * 1000));
  auto stopped = call(id, ShimRequest::kStop, request.encode(), grace + kStopSlack);
  // It may have ended by itself, or removed itself, while we asked.
  if (!stopped &&
      (stopped.error().code == ErrorCode::kInvalidState || stopped.error().code == ErrorCode::kNotFound ||
       stopped.error().code == ErrorCode::kVmLost))
    stopped = {};
  DRUPE_TRY(stopped);
  if (const auto dir = home_.open_sandbox(id)) {
    // A connection that breaks is no proof of an end.
    if (auto ended = wait_for_lock(dir->get(), kDeathWait);
        !ended && ended.error().code != ErrorCode::kNotFound)
      return fail(ErrorCode::kBusy, "The sandbox " + called(info.record) + " has not ended",
                  "Try again, or end it with drupe rm -f " + called(info.record) + ".");
  }
  release_promise(home_, id, info.record.shape.memory_mib);
  if (info.record.auto_remove) static_cast<void>(mend_sandbox(home_, id));
  return {};
}

Result<UniqueFd> EngineImpl::seize(const std::string& id, int dir) {
  if (const auto own = owned_.find(id); own != owned_.end()) {
    UniqueFd lock = std::move(own->second);
    owned_.erase(own);
    return lock;
  }
  DRUPE_ASSIGN(UniqueFd lock, try_lock(dir, kLockFile));
  if (lock.valid()) return lock;
  if (auto client = ShimClient::connect(*loop_, dir)) {
    StopRequest request;
    request.discard = true;
    static_cast<void>((*client)->call(static_cast<std::uint16_t>(ShimRequest::kStop), request.encode(),
                                      Clock::now() + kDiscardLimit));
  }
  auto waited = wait_for_lock(dir, kDiscardLimit);
  if (waited) return waited;
  kill_listener(dir);
  return wait_for_lock(dir, kDeathWait);
}

Status EngineImpl::remove(const std::string& id, bool force) {
  reap_children();
  auto dir = home_.open_sandbox(id);
  if (!dir) return std::unexpected(std::move(dir).error());
  const auto record = read_own_record(dir->get(), id);
  const auto networks = all_networks_with(id);
  if (!force && !owned_.contains(id)) {
    DRUPE_ASSIGN(const bool alive, is_locked(dir->get(), kLockFile));
    if (alive && record && record->state == SandboxState::kRunning)
      return fail(ErrorCode::kInvalidState, "The sandbox " + called(*record) + " is running",
                  "Stop it first (drupe stop " + called(*record) + "), or remove it with drupe rm -f.");
  }
  const auto lock = seize(id, dir->get());
  // One that is to go at its end has removed its directory when it was told to end.
  if (!lock && lock.error().code != ErrorCode::kNotFound) return std::unexpected(lock.error());
  failpoint("engine.remove.seized");
  std::string gone;
  {
    // The directory first: a name without a sandbox is recognised, a sandbox without its name is not.
    DRUPE_ASSIGN(const UniqueFd names, home_.lock());
    DRUPE_ASSIGN(gone, home_.set_aside(Home::sandbox(id)));
    failpoint("engine.remove.set_aside");
    const auto latest = read_own_record(dir->get(), id);
    if (const auto& known = latest ? latest : record) {
      drop_name(home_, known->name, id);
      release_promise(home_, id, known->shape.memory_mib);
    }
  }
  failpoint("engine.remove.unnamed");
  tell_neighbours(networks);
  auto removed = home_.remove_set_aside(gone);
  reap_children();
  return removed;
}

Status EngineImpl::rename(const std::string& id, const std::string& name) {
  DRUPE_ASSIGN(const SandboxInfo info, look_at(id));
  if (info.record.name == name) return {};
  DRUPE_TRY(check_name(name));
  // Connected before the home's lock is taken: nothing slow happens under it.
  std::unique_ptr<ShimClient> client;
  Held held;
  if (info.alive && info.record.state == SandboxState::kRunning) {
    DRUPE_ASSIGN(client, connect_running(id));
  } else {
    DRUPE_ASSIGN(held, hold(id));
  }
  DRUPE_ASSIGN(UniqueFd names, home_.lock());
  DRUPE_TRY(take_name(home_, name, id));
  failpoint("engine.rename.linked");
  Status renamed;
  if (client) {
    UpdateRequest request;
    request.name = name;
    const Deadline limit = Clock::now() + kUpdateLimit;
    request.valid_until_ns = monotonic_ns(limit);
    // Longer than it is valid, so that whoever gives up knows that nothing comes of it later.
    const auto reply = client->call(static_cast<std::uint16_t>(ShimRequest::kUpdate), request.encode(),
                                    limit + kUpdateGrace);
    if (!reply) renamed = std::unexpected(reply.error());
  } else {
    held.record.name = name;
    renamed = write_record(held.dir.get(), held.record);
  }
  failpoint("engine.rename.recorded");
  if (renamed)
    drop_name(home_, info.record.name, id);
  else
    drop_name(home_, name, id);
  names.reset();  // The networks' lock is not taken under it.
  held.lock.reset();
  if (renamed) tell_neighbours(all_networks_with(id));
  return renamed;
}

Result<SandboxInfo> EngineImpl::wait(const std::string& id) {
  while (true) {
    reap_children();
    DRUPE_ASSIGN(SandboxInfo info, look_at(id));
    if (info.record.state == SandboxState::kExited) return info;
    if (info.record.state != SandboxState::kRunning || !info.alive) {
      std::this_thread::sleep_for(kWaitPoll);  // created or paused: nobody is there who could tell
      continue;
    }
    const auto client = connect_running(id);
    const auto reply =
        client ? (*client)->call(static_cast<std::uint16_t>(ShimRequest::kWait), {}, Deadline::max())
               : Result<std::string>(std::unexpected(client.error()));
    if (!reply) {
      std::this_thread::sleep_for(kWaitPoll);  // It ends at this moment, or takes no more clients.
      continue;
    }
    DRUPE_ASSIGN(const WaitReply ended, WaitReply::decode(as_bytes(*reply)));
    DRUPE_ASSIGN(SandboxRecord record, decode_record(ended.record_json));
    return SandboxInfo{std::move(record), false};
  }
}

}  // namespace drupe
