// Repairing what a killed process left behind. States and their repairs: docs/states.md.
#pragma once

#include <optional>
#include <string>

#include "engine/home.h"
#include "shim/record.h"

namespace drupe {

enum class Mended : std::uint8_t {
  kNothing,
  kVmLost,   ///< It ran, and nobody holds its lock: now exited, cause vm_lost.
  kRemoved,  ///< It should have been removed at its end: now it is.
};

struct MendResult {
  Mended what = Mended::kNothing;
  bool alive = false;                   ///< Somebody holds the lock.
  std::optional<SandboxRecord> record;  ///< Absent when it was removed, or is being removed.
  std::string note;                     ///< A sentence for the user when something was mended.
};

/// Looks at one sandbox and repairs it if nobody holds its lock. Takes that lock only when there is something
/// to repair. A damaged record is an error that names the sandbox.
Result<MendResult> mend_sandbox(const Home& home, const std::string& id);

/// The repair itself, for those who hold the lock already: changes and writes `record`; true when it did.
Result<bool> mend_locked(int dir, SandboxRecord& record);

/// True when nobody may start or keep this sandbox any more: it was to be removed at its end, and that has
/// come.
[[nodiscard]] bool is_leftover(const SandboxRecord& record);

}  // namespace drupe
