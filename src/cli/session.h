// What every command shares: the engine, opened when it is first needed, and how things are said to the user.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"
#include "cli/progress_view.h"
#include "engine/engine.h"

namespace drupe::cli {

/// Exit status for faults of ours and for wrong usage, as Docker has it.
inline constexpr int kOurFault = 125;

class Session {
 public:
  Session();

  bool quiet = false;  ///< No progress, no notes.
  bool json = false;

  /// Opens the home at the first call.
  Result<Engine*> engine();
  ProgressView& progress() { return progress_; }

  /// Adds --json and --quiet, parses, and answers --help. Gives the plain words, or the status to exit with.
  std::expected<std::vector<std::string>, int> parse(FlagSet& flags,
                                                     const std::vector<std::string>& arguments,
                                                     Words words = Words::kAnywhere);

  /// "drupe: note: ..." on stderr unless quiet.
  void note(std::string_view sentence);
  /// "drupe: ..." on stderr; returns `status`.
  int fail_with(const Error& error, int status);
  /// Wrong usage: the sentence and how the command is used.
  int usage_error(const FlagSet& flags, std::string_view sentence);
  /// Writes to stdout; a closed stdout ends the command quietly with a status of 1.
  int print(std::string_view text);

 private:
  ProgressView progress_{false};
  std::unique_ptr<Engine> engine_;
};

using Arguments = std::vector<std::string>;

}  // namespace drupe::cli
