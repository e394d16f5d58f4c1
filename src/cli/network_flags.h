// The flags about what a sandbox may reach, of run, create and net set.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "engine/engine.h"

namespace drupe::cli {

struct NetworkFlags {
  std::optional<NetworkMode> mode;
  std::vector<std::string> allow, deny, allow_private, publish;
  std::uint64_t quota_bytes = 0;
  std::vector<std::string> networks;  ///< Private ones.

  /// `for_new`: with -p and --network, which a running sandbox cannot change or changes in another way.
  void add_to(FlagSet& flags, bool for_new);
  /// --allow alone means the mode policy. The rules themselves are the engine's to check.
  [[nodiscard]] NetworkOptions options() const;
  [[nodiscard]] bool given() const;
};

}  // namespace drupe::cli
