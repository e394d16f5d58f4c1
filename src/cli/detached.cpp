#include "cli/detached.h"

#include <chrono>

namespace drupe::cli {

Result<int> start_and_leave(Engine& engine, ShimClient& client, OpenRequest request,
                            std::optional<Error>& why) {
  request.exec.keep_on_reset = true;
  bool done = false;
  int status = 0;
  std::optional<Error> error;
  StreamHandler handler;
  handler.on_opened = [&](const OpenedReply&) { done = true; };
  handler.on_exit = [&](const ExitFacts& facts) {
    why = facts.error;
    if (why) status = exit_status(facts);
    done = true;
  };
  handler.on_error = [&](const Error& problem) {
    error = problem;
    done = true;
  };
  handler.on_data = [](Channel, std::string_view) {};
  DRUPE_ASSIGN(const auto stream, client.open(request, std::move(handler)));
  DRUPE_ASSIGN(const bool answered,
               engine.loop().run_until([&] { return done; }, Clock::now() + std::chrono::seconds(60)));
  if (error) return std::unexpected(*error);
  if (!answered) return fail(ErrorCode::kTimeout, "The sandbox did not start the command within 60 seconds");
  if (why) return status;
  client.reset(stream, "detached");
  // The reset has to leave this process before the connection closes; an answered request proves it.
  DRUPE_TRY(client.call(static_cast<std::uint16_t>(RequestKind::kPing), "",
                        Clock::now() + std::chrono::seconds(10)));
  return 0;
}

}  // namespace drupe::cli
