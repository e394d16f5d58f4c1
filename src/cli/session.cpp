#include "cli/session.h"

#include <cerrno>

#include <unistd.h>

#include "base/files.h"
#include "cli/cancel_scope.h"
#include "cli/values.h"

namespace drupe::cli {

Session::Session() = default;

Result<Engine*> Session::engine() {
  if (engine_ == nullptr) {
    EngineOptions options;
    options.on_progress = [this](std::string_view stage, std::uint64_t done, std::uint64_t total) {
      progress_.report(stage, done, total);
    };
    options.on_note = [this](std::string_view sentence) { note(sentence); };
    options.cancel = CancelScope::flag();
    DRUPE_ASSIGN(engine_, Engine::open(std::move(options)));
  }
  return engine_.get();
}

std::expected<Arguments, int> Session::parse(FlagSet& flags, const Arguments& arguments, Words words) {
  flags.flag("-q, --quiet", quiet, "No progress and no notes");
  auto plain = flags.parse(arguments, words);
  progress_.set_quiet(quiet);
  if (flags.wants_help()) {
    print(flags.help());
    return std::unexpected(0);
  }
  if (!plain) return std::unexpected(fail_with(plain.error(), kOurFault));
  return std::move(*plain);
}

void Session::note(std::string_view sentence) {
  if (quiet) return;
  progress_.finish();
  (void)write_all(STDERR_FILENO, "drupe: note: " + printable(sentence) + "\n");
}

int Session::fail_with(const Error& error, int status) {
  progress_.finish();
  (void)write_all(STDERR_FILENO, "drupe: " + printable(to_string(error)) + "\n");
  return status;
}

int Session::usage_error(const FlagSet& flags, std::string_view sentence) {
  progress_.finish();
  (void)write_all(STDERR_FILENO, "drupe: " + printable(sentence) + "\nUsage: drupe " + flags.usage() + "\n");
  return kOurFault;
}

int Session::print(std::string_view text) {
  progress_.finish();
  const auto written = write_all(STDOUT_FILENO, text);
  if (written) return 0;
  if (written.error().sys_errno != EPIPE) return fail_with(written.error(), 1);
  return 1;
}

}  // namespace drupe::cli
