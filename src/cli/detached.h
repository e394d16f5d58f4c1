// Commands that go on without this program.
#pragma once

#include <optional>

#include "cli/foreground.h"
#include "engine/engine.h"

namespace drupe::cli {

/// Opens the stream, waits until its command has started and leaves it running. 0, or the status (126, 127)
/// of a command that could not start, with the reason in `why`.
Result<int> start_and_leave(Engine& engine, ShimClient& client, OpenRequest request,
                            std::optional<Error>& why);

}  // namespace drupe::cli
