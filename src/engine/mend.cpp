#include "engine/mend.h"

#include <fcntl.h>

#include "engine/admission.h"
#include "engine/file_lock.h"
#include "engine/names.h"
#include "engine/sandbox_files.h"

namespace drupe {
namespace {

std::string called(const SandboxRecord& record) {
  return record.name.empty() ? record.id : record.name;
}

/// Removes a leftover; the caller holds its lock.
Status remove_leftover(const Home& home, const SandboxRecord& record) {
  std::string gone;
  {
    DRUPE_ASSIGN(const UniqueFd lock, home.lock());
    DRUPE_ASSIGN(gone, home.set_aside(Home::sandbox(record.id)));
    drop_name(home, record.name, record.id);
  }
  return home.remove_set_aside(gone);
}

bool needs_mending(const SandboxRecord& record) {
  return record.state == SandboxState::kRunning || is_leftover(record);
}

Result<MendResult> mend_now(const Home& home, int dir, const std::string& id) {
  MendResult result;
  DRUPE_ASSIGN(const UniqueFd lock, try_lock(dir, kLockFile));
  result.alive = !lock.valid();
  auto record = read_own_record(dir, id);
  if (!record) return std::unexpected(std::move(record).error());
  result.record = std::move(*record);
  if (result.alive) return result;  // another process mends or starts it
  DRUPE_ASSIGN(const bool lost, mend_locked(dir, *result.record));
  release_promise(home, id, result.record->shape.memory_mib);
  if (lost) {
    result.what = Mended::kVmLost;
    result.note = "The sandbox " + called(*result.record) +
                  " had lost its machine; its disk is intact, and drupe start " + called(*result.record) +
                  " boots it.";
  }
  if (is_leftover(*result.record)) {
    DRUPE_TRY(remove_leftover(home, *result.record));
    result.what = Mended::kRemoved;
    result.note =
        "Removed the sandbox " + called(*result.record) + ", which a process that has ended left behind.";
    result.record.reset();
  }
  return result;
}

}  // namespace

bool is_leftover(const SandboxRecord& record) {
  // A fork's child is locked from its birth until its shim runs, so this one's maker was killed.
  if (record.state == SandboxState::kCreated && !record.parent_id.empty()) return true;
  if (!record.auto_remove) return false;
  // One that outlives its creator has a life before its first start and while it is paused.
  return record.state == SandboxState::kExited ||
         (record.state == SandboxState::kCreated && !record.detached);
}

Result<bool> mend_locked(int dir, SandboxRecord& record) {
  if (record.state != SandboxState::kRunning) return false;
  record.state = SandboxState::kExited;
  record.cause = EndCause::kVmLost;
  record.cause_text = "The machine or the process that supervised it was killed.";
  record.finished_ns = realtime_ns();
  forget_memory(record);
  DRUPE_TRY(write_record(dir, record));
  sweep_files(dir, record);
  return true;
}

Result<MendResult> mend_sandbox(const Home& home, const std::string& id) {
  DRUPE_ASSIGN(const UniqueFd dir, home.open_sandbox(id));
  MendResult result;
  DRUPE_ASSIGN(result.alive, is_locked(dir.get(), kLockFile));
  auto record = read_own_record(dir.get(), id);
  if (!record) {
    if (record.error().code == ErrorCode::kNotFound) return no_sandbox(id);
    return std::unexpected(std::move(record)
                               .error()
                               .in("The record of sandbox " + id + " cannot be read")
                               .with_next_step("drupe rm -f " + id + " removes it."));
  }
  if (result.alive && is_going(*record)) return no_sandbox(id);
  if (result.alive || !needs_mending(*record)) {
    result.record = std::move(*record);
    return result;
  }
  return mend_now(home, dir.get(), id);
}

}  // namespace drupe
