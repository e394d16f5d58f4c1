// Pause, base snapshot, and shortening of the disk's chain. README.md says why each order is safe.
#include <algorithm>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/files.h"
#include "base/log.h"
#include "shim/sandbox.h"

namespace drupe {
namespace {

constexpr std::chrono::seconds kPauseDeadline{60};
constexpr std::chrono::seconds kBaseDeadline{120};
constexpr std::chrono::seconds kDropNodes{30};
constexpr std::chrono::milliseconds kAnswerTaken{100};
constexpr std::uint64_t kExerciseTimeoutMs = 60'000;

// A command of kMakeBase whose output nobody wants.
class Exercise final : public GuestStream {
 public:
  explicit Exercise(GuestLink& link) : link_(link) {}
  ~Exercise() override { link_.reset(id_, "took too long"); }
  Status run(EventLoop& loop, const std::string& line, std::size_t number) {
    OpenRequest request;
    request.exec.exec_id = "exercise-" + std::to_string(number);
    request.exec.argv = {"/bin/sh", "-c", line};
    request.exec.timeout_ms = kExerciseTimeoutMs;
    DRUPE_ASSIGN(id_, link_.open(request.encode(), *this));
    const auto limit = Clock::now() + std::chrono::milliseconds(2 * kExerciseTimeoutMs);
    DRUPE_ASSIGN([[maybe_unused]] const bool done,
                 loop.run_until([this] { return done_ || link_.broken(); }, limit));
    return {};
  }
  void on_guest_frame(const Frame& frame) override {
    if (frame.type == FrameType::kExit || frame.type == FrameType::kReset) done_ = true;
    if (frame.type == FrameType::kData)
      (void)link_.grant(id_, frame.channel, static_cast<std::uint32_t>(frame.payload.size()));
  }

 private:
  GuestLink& link_;
  std::uint32_t id_ = 0;
  bool done_ = false;
};

}  // namespace

SaveNames Sandbox::next_names() {
  const std::string number = std::to_string(record_.next_file++);
  return {"delta-" + number, "extents-" + number, "state-" + number};
}

// --- pause
// -------------------------------------------------------------------------------------------------------------

Result<std::string> Sandbox::pause() {
  // The copying would write to the saved node after the guest has stopped, and be cut short by the end.
  DRUPE_TRY(wait_for_flattening(Clock::now() + kPauseDeadline));
  const Deadline deadline = Clock::now() + kPauseDeadline;
  auto saver = std::make_shared<Saver>(loop_, *machine_, *link_, host_.dir, next_names());
  hub_.pause_reading(true);
  auto saved = saver->save(SaveForm::kDelta, deadline);
  if (!saved && saved.error().code == ErrorCode::kTimeout && !saver->unusable()) {
    // More is to be flushed than a standstill may take: so it is flushed while the guest runs, and then
    // again.
    hub_.pause_reading(false);
    DRUPE_TRY(saver->sync(deadline));
    hub_.pause_reading(true);
    saved = saver->save(SaveForm::kDelta, deadline);
  }
  pass_failpoint("shim.pause.saved");
  SandboxRecord paused = record_;
  if (saved) note_network(*saved);
  Status written;
  // Its command ended or its owner went meanwhile: there is nothing to come back to.
  if (saved && end_plan_) written = fail(ErrorCode::kInvalidState, "The sandbox is ending");
  if (saved && written) {
    paused.network.used_bytes = record_.network.used_bytes;
    paused.state = SandboxState::kPaused;
    paused.saved = *saved;
    paused.paused_ns = now_realtime_ns();
    written = write_record(host_.dir, paused);
  }
  if (!saved || !written) {
    if (saved) ::unlinkat(host_.dir, saved->flows_file.c_str(), 0);
    if (saved && !saver->go_on(/*keep_files=*/false, {}))
      saved = fail(ErrorCode::kGuest, "The guest did not go on");
    hub_.pause_reading(false);
    if (saver->unusable())
      request_end({EndCause::kVmLost, "A save failed and the guest did not go on", EndHow::kKill, 0, 0});
    if (!saved) return std::unexpected(std::move(saved).error());
    return std::unexpected(std::move(written).error());
  }
  record_ = std::move(paused);
  pass_failpoint("shim.pause.recorded");
  // From here on the sandbox is paused, whatever happens. The rest runs after the answer has been queued.
  ending_ = true;
  loop_.defer([this, saver] { after_pause(*saver); });
  return std::string();
}

void Sandbox::after_pause(Saver& saver) {
  part_from_clients(
      Error{ErrorCode::kInvalidState, "The sandbox was paused", "Resume it with `drupe resume`.", 0});
  hub_.drain(kAnswerTaken);
  machine_->kill();
  turn_peers_away(false);
  peer_listener_.reset();
  network_.reset();  // Its ports are free for whoever resumes.
  // Whoever resumes it need wait neither for the process's end, which takes as long as its memory is large,
  // nor until the files are durable; being durable is noted only if nobody has.
  if (host_.lock >= 0) ::flock(host_.lock, LOCK_UN);
  machine_.reset();
  // Nodes that a fork has frozen may be on their way to the disk as well; the image is durable already.
  std::vector<std::string> others(record_.disk_chain.begin() + 1, record_.disk_chain.end());
  others.emplace_back(kRecordFile);
  others.push_back(record_.saved->flows_file);
  if (auto durable = saver.make_durable(others); !durable) {
    log(LogLevel::kInfo, "The saved memory is not durable: " + durable.error().message);
  } else if (host_.lock < 0 || ::flock(host_.lock, LOCK_EX | LOCK_NB) == 0) {
    const auto now = read_record(host_.dir);
    if (now && now->state == SandboxState::kPaused && now->saved &&
        now->saved->epoch == record_.saved->epoch) {
      record_ = *now;
      record_.saved->durable = true;
      if (auto written = write_record(host_.dir, record_, Sync::kYes); !written)
        log(LogLevel::kWarning, written.error().message);
    }
  }
  over_ = true;
}

// --- disk chain
// --------------------------------------------------------------------------------------------------------

void Sandbox::flatten_if_long() {
  if (flattening_ || end_plan_ || !machine_ || record_.disk_chain.size() <= kLongDiskChain) return;
  flattening_ = true;
  flattened_.reset();
  machine_->flatten_disk([this, alive = alive_](Status done) {
    if (!*alive) return;
    flattened_ = std::move(done);
    // What is left waits for the machine, so it must not run above or below anything else that does.
    run_operation([](const Result<std::string>&) {},
                  [this] {
                    finish_flattening();
                    return std::string();
                  });
  });
}

void Sandbox::finish_flattening() {
  if (!flattened_) return;  // Whoever waited for it has done so.
  Status done = std::move(*std::exchange(flattened_, std::nullopt));
  if (done) done = machine_->drop_flattened(Clock::now() + kDropNodes);
  flattening_ = false;
  if (!done) return log(LogLevel::kWarning, "Flattening the disk failed: " + done.error().message);
  // Until the record is replaced the long chain is as true as the short one: the top node has everything.
  if (removes_itself_now()) return;
  const auto chain = record_.disk_chain;
  SandboxRecord flat = record_;
  flat.disk_chain = {chain.front(), chain.back()};
  if (auto written = write_record(host_.dir, flat); !written)
    return log(LogLevel::kWarning, written.error().message);
  record_ = std::move(flat);
  for (std::size_t i = 1; i + 1 < chain.size(); ++i) ::unlinkat(host_.dir, chain[i].c_str(), 0);
}

// An end is not delayed by it: the long chain stays, for the next start to flatten.
Status Sandbox::wait_for_flattening(Deadline deadline) {
  if (!flattening_) return {};
  DRUPE_ASSIGN(const bool done,
               loop_.run_until([this] { return flattened_ || end_plan_ || link_->broken(); }, deadline));
  if (end_plan_ || link_->broken()) return fail(ErrorCode::kInvalidState, "The sandbox is ending");
  if (!done)
    return fail(ErrorCode::kBusy, "The sandbox's disk is being put in order", "Try again in a minute.");
  finish_flattening();
  return {};
}

// --- base snapshot
// -----------------------------------------------------------------------------------------------------

void Sandbox::exercise() {
  std::size_t number = 0;
  for (const auto& line : spec_.exercise) {
    Exercise command(*link_);
    if (auto ran = command.run(loop_, line, number++); !ran)
      log(LogLevel::kInfo, "An exercise of the base snapshot failed: " + ran.error().message);
  }
}

Status Sandbox::make_base() {
  operation_running_ = true;  // A machine that is lost meanwhile is noticed by the steps themselves.
  exercise();
  const Deadline deadline = Clock::now() + kBaseDeadline;
  Saver saver(loop_, *machine_, *link_, host_.dir, {kBaseRamFile, {}, kBaseStateFile});
  DRUPE_TRY(saver.sync(deadline));
  DRUPE_ASSIGN(const SavedState saved, saver.save(SaveForm::kWhole, deadline));
  timings_.emplace_back("saved", timings_.empty() ? 0 : timings_.back().second + saver.stopped_ms());
  machine_->kill();
  machine_.reset();
  record_.state = SandboxState::kPaused;
  record_.base_ram_file = kBaseRamFile;
  record_.saved = saved;
  record_.saved->durable = true;
  DRUPE_TRY(saver.make_durable({record_.disk_chain.back()}));
  DRUPE_TRY(write_record(host_.dir, record_, Sync::kYes));
  over_ = true;
  return {};
}

}  // namespace drupe
