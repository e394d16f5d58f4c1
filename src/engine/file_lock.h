// flock() as a value. A lock lives with its open file: it ends when the last descriptor of it is closed, so a
// killed process never leaves one behind, and a child that inherits the descriptor keeps it.
#pragma once

#include <string>

#include "base/event_loop.h"
#include "base/files.h"

namespace drupe {

/// Takes LOCK_EX without waiting; the descriptor is invalid when another process holds the lock. The file is
/// created.
Result<UniqueFd> try_lock(DirFd dir, const std::string& path);
/// Takes LOCK_EX, waiting until `deadline` (kBusy then; `what` names the thing in the sentence).
Result<UniqueFd> lock_file(DirFd dir, const std::string& path, Deadline deadline, std::string_view what);
/// True when somebody holds the lock. A missing file is not held.
Result<bool> is_locked(DirFd dir, const std::string& path);

}  // namespace drupe
