// drupe cp.
#include "cli/commands.h"
#include "cli/transfer.h"
#include "cli/values.h"

namespace drupe::cli {
namespace {

struct Place {
  std::string sandbox;  ///< Empty: on this machine.
  std::string path;
};

/// "SANDBOX:PATH", or a local path. What begins with '/' or '.', and "-", is local whatever colons it has.
Place parse_place(const std::string& text) {
  const auto colon = text.find(':');
  if (colon == std::string::npos || colon == 0 || text.front() == '/' || text.front() == '.')
    return {"", text};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

}  // namespace

int run_command_cp(Session& session, const Arguments& arguments) {
  CopyOptions options;
  FlagSet set("cp [FLAGS] SANDBOX:PATH LOCAL|-   or   drupe cp [FLAGS] LOCAL|- SANDBOX:PATH",
              "Copies files and folders into or out of a sandbox, by docker cp's rules. '-' is a tar stream "
              "on stdin or stdout.\n"
              "Links that the sandbox made are copied as links and never followed on this machine.");
  set.flag("-a, --archive", options.archive, "Keep user and group")
      .flag("-L, --follow-link", options.follow_link, "Follow a symbolic link given as the source");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->size() != 2) return session.usage_error(set, "A source and a target are needed.");
  const Place from = parse_place(words->front());
  const Place to = parse_place(words->back());
  if (from.sandbox.empty() == to.sandbox.empty())
    return session.usage_error(set, "Exactly one of source and target must be SANDBOX:PATH.");
  if (from.path.empty() || to.path.empty())
    return session.usage_error(set, "A path is missing; '/' is the whole sandbox.");
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), 1);
  auto sandbox = (*engine)->find(from.sandbox.empty() ? to.sandbox : from.sandbox);
  if (!sandbox) return session.fail_with(sandbox.error(), 1);
  auto client = (*engine)->connect(sandbox->record.id, true);
  if (!client) return session.fail_with(client.error(), 1);
  session.progress().finish();
  auto copied = from.sandbox.empty()
                    ? copy_to_guest((*engine)->loop(), **client, from.path, to.path, options)
                    : copy_from_guest((*engine)->loop(), **client, from.path, to.path, options);
  return copied ? 0 : session.fail_with(copied.error(), 1);
}

}  // namespace drupe::cli
