// The JSON object of `run --json` and `exec --json`.
#pragma once

#include <string>

#include "cli/foreground.h"
#include "engine/engine.h"

namespace drupe::cli {

/// One object with its line end. `isolation` of the sandbox's record; `timings` in milliseconds by stage.
[[nodiscard]] std::string run_report(const ForegroundResult& result, std::string_view isolation,
                                     const Timings& timings);
/// The same keys for a run that failed before its command started.
[[nodiscard]] std::string failed_run_report(const Error& error, const Timings& timings);

}  // namespace drupe::cli
