// Commands with a second word: drupe image ..., drupe net ...
#pragma once

#include <span>
#include <string_view>

#include "cli/session.h"

namespace drupe::cli {

struct GroupCommand {
  std::string_view name;
  int (*run)(Session&, const Arguments&);
};

/// Runs the command that the first argument names. `set` is the group's own help, `group` its word.
int run_group(Session& session, const FlagSet& set, std::string_view group,
              std::span<const GroupCommand> commands, const Arguments& arguments);

}  // namespace drupe::cli
