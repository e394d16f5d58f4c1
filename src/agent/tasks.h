// Built-in operations that may block on the guest's file systems. Each runs in a child of its own inside the
// user's mount namespace, with the stream's bytes on descriptors 0 and 1. /proc there belongs to another PID
// namespace and is not used.
#pragma once

#include <string>

#include "base/result.h"
#include "protocol/messages.h"

namespace drupe::agent {

/// Runs one operation to its end. Returns the stream's result (an encoded StatResult, or nothing).
Result<std::string> run_task(OpenKind kind, const FileOptions& options);

}  // namespace drupe::agent
