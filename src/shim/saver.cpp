#include "shim/saver.h"

#include <cerrno>

#include <fcntl.h>

#include "base/files.h"
#include "base/log.h"

namespace drupe {
namespace {

// User work and file systems come to a standstill in a moment, since everything was flushed before; a save
// that takes longer fails and the sandbox goes on.
constexpr std::chrono::milliseconds kFreezeDeadline{1000};
// For the agent's answer, on a machine that is overloaded.
constexpr std::chrono::seconds kAnswerGrace{10};
constexpr std::chrono::seconds kGoOnDeadline{30};

}  // namespace

Status Saver::sync(Deadline deadline) {
  begin(RequestKind::kSync);
  return end_flush(deadline);
}

void Saver::begin_flush() {
  begin(RequestKind::kFlush);
}

void Saver::begin(RequestKind kind) {
  synced_ = std::make_shared<std::optional<Result<std::string>>>();
  link_.request(static_cast<std::uint16_t>(kind), {},
                [synced = synced_](Result<std::string> done) { *synced = std::move(done); });
}

Status Saver::end_flush(Deadline deadline) {
  DRUPE_ASSIGN(const bool came, loop_.run_until([this] { return synced_->has_value(); }, deadline));
  if (!came)
    return fail(ErrorCode::kTimeout, "The guest's agent did not flush its files in time", "Try again.");
  // An agent from before kFlush flushes when it freezes.
  if (!**synced_ && (*synced_)->error().code != ErrorCode::kUnsupported)
    return std::unexpected((*synced_)->error());
  return {};
}

Result<SavedState> Saver::save(SaveForm form, Deadline deadline) {
  StageMarks nobodys;
  return save(form, deadline, nobodys);
}

Result<SavedState> Saver::save(SaveForm form, Deadline deadline, StageMarks& marks) {
  DRUPE_TRY(link_.freeze(kFreezeDeadline, Clock::now() + kFreezeDeadline + kAnswerGrace));
  frozen_ = true;
  stopped_at_ = Clock::now();
  marks.mark("frozen");
  auto saved = write_files(form, deadline, marks);
  if (saved) return saved;
  if (auto undone = go_on(/*keep_files=*/false, {}); !undone)
    log(LogLevel::kError, "The guest did not go on after a failed save: " + undone.error().message);
  return saved;
}

Result<SavedState> Saver::write_files(SaveForm form, Deadline deadline, StageMarks& marks) {
  constexpr int kNew = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  DRUPE_ASSIGN(UniqueFd device_state, open_at(dir_, names_.device_state, kNew));
  DRUPE_ASSIGN(const UniqueFd memory, open_at(dir_, names_.memory, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW));
  DRUPE_TRY(machine_.stop(deadline));
  stopped_ = true;
  marks.mark("stopped");
  DRUPE_ASSIGN(const SavedMemory written,
               machine_.save(std::move(device_state), memory.get(), form, deadline));
  SavedState saved;
  saved.device_state_file = names_.device_state;
  saved.epoch = link_.epoch();
  if (form == SaveForm::kWhole) return saved;
  saved.delta_file = names_.memory;
  saved.extents_file = names_.extents;
  DRUPE_ASSIGN(const UniqueFd extents, open_at(dir_, names_.extents, kNew));
  DRUPE_TRY(write_all(extents.get(), encode_extents(written.extents)));
  return saved;
}

Status Saver::go_on(bool keep_files, const std::function<Status(Deadline)>& repair) {
  const Deadline deadline = Clock::now() + kGoOnDeadline;
  if (!keep_files) remove_files();
  unusable_ = true;
  if (stopped_) DRUPE_TRY(machine_.cont(deadline));
  stopped_ = false;
  if (frozen_ && repair) {
    DRUPE_TRY(link_.reopen(deadline));
    DRUPE_TRY(repair(deadline));
  }
  if (frozen_) DRUPE_TRY(link_.thaw(deadline));
  frozen_ = false;
  went_on_at_ = Clock::now();
  unusable_ = false;
  return {};
}

double Saver::stopped_ms() const {
  const auto end = went_on_at_ == Clock::time_point{} ? Clock::now() : went_on_at_;
  return std::chrono::duration<double, std::milli>(end - stopped_at_).count();
}

void Saver::remove_files() {
  for (const auto& name : {names_.memory, names_.extents, names_.device_state})
    ::unlinkat(dir_, name.c_str(), 0);
}

Status Saver::make_durable(const std::vector<std::string>& others) {
  std::vector<std::string> names = others;
  names.insert(names.end(), {names_.memory, names_.extents, names_.device_state});
  for (const auto& name : names) {
    if (name.empty()) continue;
    DRUPE_ASSIGN(const UniqueFd file, open_at(dir_, name, O_RDONLY | O_NOFOLLOW));
    if (::fsync(file.get()) != 0) return fail_sys("Flushing " + name + " failed", errno);
  }
  if (::fsync(dir_) != 0) return fail_sys("Flushing the sandbox's directory failed", errno);
  return {};
}

}  // namespace drupe
