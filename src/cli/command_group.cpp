#include "cli/command_group.h"

#include "cli/values.h"

namespace drupe::cli {

int run_group(Session& session, const FlagSet& set, std::string_view group,
              std::span<const GroupCommand> commands, const Arguments& arguments) {
  if (arguments.empty()) return session.usage_error(set, "A command is needed.");
  for (const GroupCommand& command : commands)
    if (command.name == arguments.front())
      return command.run(session, {arguments.begin() + 1, arguments.end()});
  if (arguments.front() == "--help" || arguments.front() == "-h") return session.print(set.help());
  return session.usage_error(
      set, "There is no command '" + std::string(group) + " " + printable(arguments.front()) + "'.");
}

}  // namespace drupe::cli
