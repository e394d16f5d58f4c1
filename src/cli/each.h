// Commands that do the same to several sandboxes: each is tried, each failure is said, the status tells
// whether all went well.
#pragma once

#include <functional>
#include <string>

#include "cli/session.h"

namespace drupe::cli {

/// Runs `act` for every word; prints what it returns, a line each. Status 1 when any failed.
int for_each_sandbox(
    Session& session, const Arguments& words,
    const std::function<Result<std::string>(Engine& engine, const SandboxInfo& sandbox)>& act);

}  // namespace drupe::cli
