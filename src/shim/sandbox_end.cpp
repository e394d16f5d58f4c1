// How a sandbox ends: by its command, by request, by a timer, by its owner's end, or because its machine was
// lost.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "base/log.h"
#include "shim/private_network.h"
#include "shim/sandbox.h"

namespace drupe {
namespace {

// Beyond the grace that the guest's work gets: flushing its disk, unmounting, powering off.
constexpr std::chrono::seconds kShutdownExtra{30};
constexpr std::chrono::seconds kPowerOff{3};
constexpr std::chrono::seconds kReap{5};
constexpr std::chrono::milliseconds kLastBytes{500};
constexpr std::chrono::milliseconds kClientsTake{2000};

struct DirCloser {
  void operator()(DIR* stream) const { ::closedir(stream); }
};

std::vector<std::string> names_in(int dir) {
  std::vector<std::string> names;
  auto again = open_at(dir, ".", O_RDONLY | O_DIRECTORY);
  if (!again) return names;
  const std::unique_ptr<DIR, DirCloser> stream(::fdopendir(again->release()));
  while (stream != nullptr) {
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  return names;
}

// Files that shims number: disk-7.qcow2, delta-7, extents-7, state-7, flows-7; and what a killed writer left
// half done.
bool is_numbered_or_temporary(const std::string& name) {
  if (name.find(".tmp-") != std::string::npos) return true;
  for (const char* prefix : {"disk-", "delta-", "extents-", "state-", "flows-"}) {
    const std::string_view view(prefix);
    if (name.compare(0, view.size(), view) == 0 && name.size() > view.size() && name[view.size()] >= '0' &&
        name[view.size()] <= '9')
      return true;
  }
  return false;
}

}  // namespace

int signal_number(const std::string& name) {
  char* end = nullptr;
  const long number = std::strtol(name.c_str(), &end, 10);
  if (!name.empty() && *end == '\0') return number > 0 && number <= 64 ? static_cast<int>(number) : SIGTERM;
  const std::string bare = name.compare(0, 3, "SIG") == 0 ? name.substr(3) : name;
  for (int i = 1; i < 32; ++i) {
    const char* known = ::sigabbrev_np(i);
    if (known != nullptr && bare == known) return i;
  }
  return SIGTERM;
}

void Sandbox::request_end(EndPlan plan) {
  if (over_ || ending_) {
    if (plan.how != EndHow::kGraceful) kill_now_ = true;
    return;
  }
  const bool first = !end_plan_;
  // The first cause stands; a later wish to end at once makes an earlier one shorter.
  if (first)
    end_plan_ = std::move(plan);
  else if (plan.how != EndHow::kGraceful && end_plan_->how == EndHow::kGraceful)
    end_plan_->how = plan.how;
  // An operation in progress notices a lost machine by itself and hands over when it is done.
  if (!first || operation_running_ || !machine_) return;
  loop_.defer([this, alive = alive_] {
    if (*alive && !operation_running_ && !ending_) finish();
  });
}

void Sandbox::finish() {
  ending_ = true;
  EndPlan plan = *end_plan_;
  note_usage();
  for (const auto& timer : {lifetime_timer_, idle_timer_})
    if (timer) loop_.cancel(*timer);
  lifetime_timer_ = idle_timer_ = std::nullopt;
  if (plan.how == EndHow::kGraceful) shut_down_guest(plan);
  // Gone: the ports close a moment before the process is reaped.
  if (plan.how == EndHow::kGone && !machine_end_)
    (void)loop_.run_until([this] { return machine_end_.has_value() || kill_now_; }, Clock::now() + kPowerOff);
  settle_cause(plan);
  if (!machine_end_) machine_->kill();
  (void)loop_.run_until([this] { return machine_end_.has_value(); }, Clock::now() + kReap);
  // What the machine had sent is still on its way.
  (void)loop_.run_until([this] { return link_->drained(); }, Clock::now() + kLastBytes);
  machine_.reset();
  turn_peers_away(false);
  peer_listener_.reset();
  network_.reset();

  record_.state = SandboxState::kExited;
  record_.cause = plan.cause;
  record_.cause_text = plan.text;
  record_.finished_ns = now_realtime_ns();
  pass_failpoint("shim.end.ended");
  if (!record_.auto_remove) write_record_or_log();
  pass_failpoint("shim.end.recorded");
  const std::string why = plan.text.empty() ? "it has " + std::string(to_string(plan.cause)) : plan.text;
  part_from_clients(Error{ErrorCode::kVmLost, "The sandbox ended: " + why, {}, 0});
  if (record_.auto_remove) remove_everything();
  over_ = true;
}

void Sandbox::shut_down_guest(const EndPlan& plan) {
  const auto done = [this] { return machine_end_.has_value() || kill_now_ || link_->broken(); };
  auto replied = std::make_shared<bool>(false);
  ShutdownRequest request;
  request.signal = plan.signal == 0 ? SIGTERM : plan.signal;
  request.grace_ms = plan.grace_ms;
  link_->request(static_cast<std::uint16_t>(RequestKind::kShutdown), request.encode(),
                 [replied](const Result<std::string>& reply) {
                   *replied = true;
                   if (!reply)
                     log(LogLevel::kWarning, "The guest did not shut down cleanly: " + reply.error().message);
                 });
  const auto limit = Clock::now() + std::chrono::milliseconds(plan.grace_ms) + kShutdownExtra;
  (void)loop_.run_until([&] { return *replied || done(); }, limit);
  if (*replied) (void)loop_.run_until(done, Clock::now() + kPowerOff);
}

void Sandbox::settle_cause(EndPlan& plan) {
  if (plan.how != EndHow::kGone) return;
  if (!machine_end_) {
    plan.text = "The machine closed its ports without ending";
    return;
  }
  plan.text = machine_end_->reason;
  const bool killed =
      WIFSIGNALED(machine_end_->wait_status) && WTERMSIG(machine_end_->wait_status) == SIGKILL;
  if (machine_end_->guest_reset) {
    plan.cause = EndCause::kGuestEnded;
    if (const std::string tail = console_excerpt(console_tail()); !tail.empty())
      plan.text += "\nThe guest's console ends with:\n" + tail;
  } else if (killed && usage_.oom_kills() != 0) {
    plan.cause = EndCause::kHostOom;
    plan.text = "The host's kernel killed the machine because memory ran out";
  } else {
    plan.cause = EndCause::kVmLost;
  }
}

void Sandbox::part_from_clients(const Error& error) {
  hub_.stop_listening();
  // The machine may still run, or be made to send: nothing of it reaches a stream, or the record, any more.
  if (link_) link_->forget_streams();
  if (main_) main_->guest_gone(error);
  hub_.reset_all(error);
  for (const auto& stopper : std::exchange(stoppers_, {})) stopper(std::string());
  WaitReply reply;
  reply.record_json = brief_record_json(record_);
  const bool paused = record_.state == SandboxState::kPaused;
  for (const auto& waiter : std::exchange(waiters_, {})) {
    if (paused)
      waiter(std::unexpected(
          Error{ErrorCode::kInvalidState, "The sandbox was paused", "Resume it with `drupe resume`.", 0}));
    else
      waiter(reply.encode());
  }
  for (auto& operation : std::exchange(operations_, {})) operation.reply(std::unexpected(error));
  for (const auto& waiter : std::exchange(stage_waiters_, {})) waiter.reply(std::unexpected(error));
  ::unlinkat(host_.dir, kSocketFile, 0);
  ::unlinkat(host_.dir, kPeerSocketFile, 0);
  hub_.drain(kClientsTake);
}

// The record goes last but for the lock: until then the next command sees a sandbox that removes itself and
// has no holder, and finishes the removal.
void Sandbox::remove_everything() {
  for (const auto& name : names_in(host_.dir)) {
    if (name == kRecordFile || name == kLockFile) continue;
    if (auto removed = remove_tree(host_.dir, name); !removed)
      log(LogLevel::kWarning, removed.error().message);
  }
  ::unlinkat(host_.dir, kRecordFile, 0);
  ::unlinkat(host_.dir, kLockFile, 0);
  if (host_.remove_directory) host_.remove_directory();
}

// Removes what a killed shim or engine left: numbered files that the record does not name.
void Sandbox::sweep() {
  std::vector<std::string> keep = record_.disk_chain;
  keep.push_back(record_.base_ram_file);
  if (record_.saved) {
    keep.push_back(record_.saved->delta_file);
    keep.push_back(record_.saved->extents_file);
    keep.push_back(record_.saved->device_state_file);
    keep.push_back(record_.saved->flows_file);
  }
  for (const auto& name : names_in(host_.dir))
    if (is_numbered_or_temporary(name) && std::find(keep.begin(), keep.end(), name) == keep.end())
      ::unlinkat(host_.dir, name.c_str(), 0);
}

}  // namespace drupe
