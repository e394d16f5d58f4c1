// Runs one command stream in the foreground: its output to stdout and stderr, stdin and signals to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/event_loop.h"
#include "base/result.h"
#include "engine/engine.h"
#include "shim/client.h"

namespace drupe::cli {

/// Bytes of each output that --json keeps.
inline constexpr std::size_t kCaptureLimit = 10 * 1024 * 1024;

struct ForegroundOptions {
  bool input = false;    ///< Forward stdin to its end. Without it stdin is not touched.
  bool tty = false;      ///< A PTY: raw terminal, resizes.
  bool capture = false;  ///< Keep the output (its last kCaptureLimit bytes) instead of writing it.
};

struct ForegroundResult {
  std::optional<ExitFacts> facts;  ///< Absent: `error` says why.
  std::optional<Error> error;      ///< kVmLost when the machine is gone.
  std::string out, err;            ///< With capture.
  bool truncated = false;
  int output_error = 0;  ///< errno of a stdout that could not be written (a full disk); 0 for a closed pipe.
  int left_by_signal = 0;  ///< The user insisted on leaving before the command had ended.
};

/// Opens the stream and runs the loop until it ends and all output has left. SIGINT, SIGTERM, SIGHUP,
/// SIGQUIT, SIGUSR1 and SIGUSR2 go to the command; the second SIGINT or SIGTERM kills it, the third leaves at
/// once. A closed stdout ends the command as a closed pipe would.
Result<ForegroundResult> run_foreground(EventLoop& loop, ShimClient& client, const OpenRequest& request,
                                        const ForegroundOptions& options);

/// The shell's convention: exit code, 128 + signal, 124 for a timeout, 126 and 127 for a command that cannot
/// start, else 125.
/// Waits until the sandbox whose main command has ended has ended as well, its disk flushed and unmounted, so
/// that what comes after this program finds it so. Nothing when the command has not ended (this program left,
/// the sandbox was paused) or the sandbox has removed itself.
Status await_end(Engine& engine, const std::string& id, const ForegroundResult& main);
[[nodiscard]] int exit_status(const ForegroundResult& result);
[[nodiscard]] int exit_status(const ExitFacts& facts);
/// A sentence for ends that output and status do not explain: a timeout, no memory, a lost machine. Empty
/// otherwise.
[[nodiscard]] std::string explain(const ForegroundResult& result);

}  // namespace drupe::cli
