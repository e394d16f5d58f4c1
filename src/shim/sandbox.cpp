#include "shim/sandbox.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "shim/messages.h"
#include "shim/network_link.h"
#include "shim/private_network.h"

namespace drupe {
namespace {

constexpr std::uint32_t kStopGraceMs = 10'000;
/// A sandbox that belongs to nobody runs its command without the client that was to see it start.
constexpr std::chrono::seconds kAttachWait{10};
// Missing measures from which on the confinement counts as weak rather than partial.
constexpr std::size_t kWeakFrom = 3;

constexpr std::chrono::seconds kIdleWait{600};
constexpr std::size_t kKeptConsole = 16 * 1024;

UniqueFd pidfd_open(int pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

std::int64_t now_realtime_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

Sandbox::Sandbox(EventLoop& loop, Hypervisor& hypervisor, SandboxHost host, ShimSpec spec,
                 SandboxRecord record)
    : loop_(loop),
      hypervisor_(hypervisor),
      host_(std::move(host)),
      spec_(std::move(spec)),
      record_(std::move(record)),
      hub_(loop, ClientHub::Delegate{[this](const ClientStreamRef& client, OpenRequest request) {
                                       return open_stream(client, std::move(request));
                                     },
                                     [this](ClientId, std::uint16_t kind, ByteView body, ReplyFn reply) {
                                       on_request(kind, body, std::move(reply));
                                     },
                                     [this] { touch(); }, nullptr, nullptr}) {}

Sandbox::~Sandbox() {
  *alive_ = false;
  if (owner_pidfd_.valid()) loop_.unwatch(owner_pidfd_.get());
  for (const auto& timer : {lifetime_timer_, idle_timer_})
    if (timer) loop_.cancel(*timer);
  hub_.reset_all(Error{ErrorCode::kVmLost, "The sandbox ended", {}, 0});
}

GuestLink::Callbacks Sandbox::link_callbacks() {
  GuestLink::Callbacks callbacks;
  callbacks.on_event = [this](EventKind kind, std::string_view text) {
    if (kind != EventKind::kWorkEnded) return;
    request_end({EndCause::kGuestEnded,
                 "All of the sandbox's work was ended from inside: " + std::string(text.substr(0, 256)),
                 EndHow::kGraceful, 0, 0});
  };
  callbacks.on_broken = [this](const Error& error, bool hostile) {
    if (hostile)
      request_end({EndCause::kGuestEnded, error.message, EndHow::kKill, 0, 0});
    else
      request_end({EndCause::kVmLost, "The machine ended", EndHow::kGone, 0, 0});
  };
  return callbacks;
}

Status Sandbox::start() {
  // What arrives in the directory of a child before its record names it is not to be swept, and nothing else
  // is there.
  if (spec_.mode != LaunchMode::kMakeBase && !spec_.awaits_fork) sweep();
  // The owner may end while the machine starts.
  if (spec_.owner_bound) watch_owner(spec_.owner_pid);
  SandboxRecord updated = record_;
  Launcher launcher(loop_, hypervisor_, host_.dir, updated);
  if (spec_.awaits_fork) DRUPE_TRY(await_save(launcher, updated));
  Launcher::Options options;
  if (spec_.awaits_fork)
    options.before_thaw = [this](Deadline limit) { return await_fork_byte(kForkMayRun, limit); };
  options.mode = spec_.mode;
  options.retries = spec_.restore_retries;
  options.deadline = Clock::now() + std::chrono::milliseconds(spec_.start_deadline_ms);
  options.link_callbacks = link_callbacks();
  options.trust = std::exchange(spec_.trust, {});
  if (spec_.mode != LaunchMode::kMakeBase) {
    DRUPE_ASSIGN(peer_listener_, listen_for_peers(kPeerSocketFile));
  }
  if (has_network(updated, spec_.net) && spec_.mode != LaunchMode::kMakeBase)
    options.make_network = [this, &updated](UniqueFd frames) {
      return make_network(updated, spec_.net, std::move(frames));
    };
  auto launched = launcher.launch(std::move(options));
  timings_ = launcher.timings();
  notes_ = launcher.notes();
  if (!launched) {
    if (updated.disk_chain.size() > record_.disk_chain.size())
      ::unlinkat(host_.dir, updated.disk_chain.back().c_str(), 0);
    return std::unexpected(std::move(launched).error());
  }
  replaced_ram_file_ = updated.base_ram_file == record_.base_ram_file ? std::string() : record_.base_ram_file;
  record_ = std::move(updated);
  adopt_machine(std::move(*launched));
  pass_failpoint("shim.start.launched");
  if (spec_.mode != LaunchMode::kMakeBase) DRUPE_TRY(hub_.listen(kSocketFile));
  DRUPE_TRY(confine());
  if (spec_.mode == LaunchMode::kMakeBase) return make_base();
  DRUPE_TRY(prepare_main());
  DRUPE_TRY(become_running());
  pass_failpoint("shim.start.recorded");
  if (main_ && main_->waiting()) {
    if (!spec_.start_main_on_attach)
      start_main();
    else if (!spec_.owner_bound)  // Whoever wanted to attach may have ended.
      loop_.after(kAttachWait, [this, alive = alive_] {
        if (*alive) start_main();
      });
  }
  arm_lifetime();
  touch();
  listen_to_guest();
  loop_.defer([this, alive = alive_] {
    // The owner or the machine went during the start.
    if (*alive && end_plan_ && !ending_ && !operation_running_) finish();
  });
  if (record_.disk_chain.size() > kLongDiskChain)
    run_operation([](const Result<std::string>&) {},
                  [this] {
                    flatten_if_long();
                    return std::string();
                  });
  return {};
}

void Sandbox::pass_failpoint(std::string_view name) {
  failpoint(name, [this] {
    if (machine_) machine_->kill();
  });
}

void Sandbox::adopt_machine(Launched launched) {
  machine_ = std::move(launched.machine);
  link_ = std::move(launched.link);
  net_peer_ = std::move(launched.net_peer);
  net_end_ = std::move(launched.net_end);
  adopt_network(std::move(launched.network));
  usage_.open(std::uint64_t{record_.shape.memory_mib} << 20);
  watch_machine();
}

void Sandbox::watch_machine() {
  usage_.follow(machine_->smaps_fd(), machine_->stat_fd());
  machine_->on_end([this](const MachineEnd& end) {
    machine_end_ = end;
    request_end({EndCause::kVmLost, end.reason, EndHow::kGone, 0, 0});
  });
}

std::shared_ptr<Sandbox::Replaced> Sandbox::replace_machine(std::unique_ptr<Machine> next) {
  auto old = std::make_shared<Replaced>();
  earlier_console_ = console_tail();
  if (earlier_console_.size() > kKeptConsole)
    earlier_console_.erase(0, earlier_console_.size() - kKeptConsole);
  old->machine = std::exchange(machine_, std::move(next));
  add_missing(record_, machine_->confinement_missing());
  old->machine->on_end([state = std::weak_ptr(old)](const MachineEnd&) {
    if (const auto replaced = state.lock()) replaced->ended = true;
  });
  watch_machine();
  return old;
}

std::string Sandbox::console_tail() const {
  return earlier_console_ + machine_->console_tail();
}

void add_missing(SandboxRecord& record, const std::vector<std::string>& more) {
  auto& missing = record.confinement_missing;
  for (const auto& item : more)
    if (std::find(missing.begin(), missing.end(), item) == missing.end()) missing.push_back(item);
  record.confinement = missing.empty() ? "full" : missing.size() < kWeakFrom ? "partial" : "weak";
}

Status Sandbox::confine() {
  const HypervisorInfo& info = hypervisor_.info();
  record_.isolation = info.accelerator == Accelerator::kKvm ? "hardware-virtualized" : "emulated";
  record_.confinement_missing.clear();
  add_missing(record_, info.confinement_missing);
  add_missing(record_, machine_->confinement_missing());
  if (network_) add_missing(record_, network_->confinement_missing());
  if (host_.lock_down) {
    DRUPE_ASSIGN(auto own, host_.lock_down());
    add_missing(record_, own);
  }
  record_.state_key = info.state_key;
  record_.tsc_khz = info.tsc_khz;
  return {};
}

Status Sandbox::become_running() {
  const auto saved = std::exchange(record_.saved, std::nullopt);
  record_.state = SandboxState::kRunning;
  record_.cause = EndCause::kNone;
  record_.cause_text.clear();
  if (spec_.mode != LaunchMode::kResume) {
    record_.started_ns = now_realtime_ns();
    record_.finished_ns = 0;
  }
  DRUPE_TRY(write_record(host_.dir, record_));
  // The machine has mapped them; they were this record's alone (other sandboxes have links of their own).
  if (saved)
    for (const auto& name :
         {saved->delta_file, saved->extents_file, saved->device_state_file, saved->flows_file})
      if (!name.empty()) ::unlinkat(host_.dir, name.c_str(), 0);
  if (!replaced_ram_file_.empty()) ::unlinkat(host_.dir, replaced_ram_file_.c_str(), 0);
  return {};
}

Status Sandbox::prepare_main() {
  const bool lives_on = spec_.mode == LaunchMode::kResume || spec_.mode == LaunchMode::kForkChild;
  if (!lives_on) {
    record_.main_started = false;
    record_.main_exit.reset();
  }
  if (!record_.main) return {};
  std::optional<LogWriter> log_writer;
  if (auto opened = LogWriter::open(host_.dir))
    log_writer = std::move(*opened);
  else
    log(LogLevel::kWarning, "The output log cannot be written: " + opened.error().message);
  MainCommand::Callbacks callbacks;
  callbacks.on_wanted = [this] { loop_.defer([this] { start_main(); }); };
  callbacks.on_ended = [this](const ExitFacts& facts) { on_main_ended(facts); };
  main_ = std::make_unique<MainCommand>(*record_.main, std::move(log_writer), std::move(callbacks));
  if (lives_on && record_.main_started) return main_->reattach(*link_);
  return {};
}

void Sandbox::start_main() {
  if (!main_ || !main_->waiting() || ending_ || over_) return;
  if (auto started = main_->start(*link_); !started)
    return request_end({EndCause::kStartFailed, started.error().message, EndHow::kKill, 0, 0});
  record_.main_started = true;
  // A detached sandbox may be paused and resumed, so its record has to know; nobody resumes one that goes
  // with its command.
  if (!record_.auto_remove) write_record_or_log();
}

void Sandbox::on_main_ended(const ExitFacts& facts) {
  record_.main_exit = facts;
  record_.main_exit->result.clear();
  if (record_.auto_remove) {
    // To everyone else it is gone from now on: its name is free, no list shows it. What is left is cleaning
    // up.
    SandboxRecord gone = record_;
    gone.state = SandboxState::kExited;
    gone.cause = EndCause::kFinished;
    gone.finished_ns = now_realtime_ns();
    if (auto written = write_record(host_.dir, gone); !written)
      log(LogLevel::kError, "The sandbox's record cannot be written: " + written.error().message);
  } else {
    write_record_or_log();
  }
  // The clients get their answer before the machine ends; a disk that goes with the sandbox needs no goodbye.
  request_end({EndCause::kFinished, {}, record_.auto_remove ? EndHow::kKill : EndHow::kGraceful, 0, 0});
}

void Sandbox::write_record_or_log() {
  if (auto written = write_record(host_.dir, record_); !written)
    log(LogLevel::kError, "The sandbox's record cannot be written: " + written.error().message);
}

void Sandbox::watch_owner(int pid) {
  if (owner_pidfd_.valid()) loop_.unwatch(owner_pidfd_.get());
  owner_pidfd_ = pid > 0 ? pidfd_open(pid) : UniqueFd();
  const auto gone = [this] {
    // Nobody lists or stops the making of a base snapshot. The machine ends with this process, and what it
    // has written is swept.
    if (spec_.mode == LaunchMode::kMakeBase) ::_exit(1);
    request_end({EndCause::kOwnerGone, "The process that made it has ended", EndHow::kKill, 0, 0});
  };
  // At the start the owner is the parent; when it is not, it ended before and its number may be another's by
  // now.
  const bool was_parent = over_ || machine_ != nullptr || ::getppid() == pid;
  if (!owner_pidfd_.valid() || !was_parent) return gone();
  if (auto watched = loop_.watch(owner_pidfd_.get(), EPOLLIN,
                                 [this, gone](std::uint32_t) {
                                   loop_.unwatch(owner_pidfd_.get());
                                   gone();
                                 });
      !watched)
    log(LogLevel::kError, "The owner cannot be watched: " + watched.error().message);
}

void Sandbox::arm_lifetime() {
  if (lifetime_timer_) loop_.cancel(*lifetime_timer_);
  lifetime_timer_.reset();
  if (record_.max_lifetime_ms == 0) return;
  const std::int64_t lived_ms = std::max<std::int64_t>(0, now_realtime_ns() - record_.started_ns) / 1'000'000;
  const auto allowed =
      static_cast<std::int64_t>(std::min<std::uint64_t>(record_.max_lifetime_ms, 1ULL << 50));
  lifetime_timer_ =
      loop_.after(std::chrono::milliseconds(std::max<std::int64_t>(0, allowed - lived_ms)), [this] {
        lifetime_timer_.reset();
        request_end({EndCause::kLifetime,
                     "Its maximum lifetime of " + std::to_string(record_.max_lifetime_ms) + " ms passed",
                     EndHow::kGraceful, signal_number(record_.stop_signal), kStopGraceMs});
      });
}

// Idle: no client has a stream. A request, a stream's begin and its end start the time anew.
void Sandbox::touch() {
  if (idle_timer_) loop_.cancel(*idle_timer_);
  idle_timer_.reset();
  if (record_.idle_timeout_ms == 0 || ending_ || over_ || !machine_ || hub_.streams() != 0) return;
  const auto wait = std::chrono::milliseconds(std::min<std::uint64_t>(record_.idle_timeout_ms, 1ULL << 50));
  idle_timer_ = loop_.after(wait, [this] {
    idle_timer_.reset();
    const auto done = [this](const Result<std::string>& result) {
      if (result) return;
      log(LogLevel::kWarning, "Pausing the idle sandbox failed: " + result.error().message);
      touch();
    };
    run_operation(done, [this]() -> Result<std::string> {
      DRUPE_TRY(wait_for_flattening(Clock::now() + kIdleWait));
      if (hub_.streams() != 0) return fail(ErrorCode::kInvalidState, "It is in use again");
      return pause();
    });
  });
}

Status Sandbox::serve() {
  while (!over_) DRUPE_TRY(loop_.run_once(Deadline::max()));
  return {};
}

void Sandbox::stop(EndCause cause, std::string text) {
  request_end({cause, std::move(text), EndHow::kGraceful, signal_number(record_.stop_signal), kStopGraceMs});
}

}  // namespace drupe
