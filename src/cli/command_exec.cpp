// drupe exec, drupe attach.
#include <unistd.h>

#include "base/files.h"
#include "base/ids.h"
#include "cli/commands.h"
#include "cli/detached.h"
#include "cli/foreground.h"
#include "cli/run_report.h"
#include "cli/sandbox_flags.h"
#include "cli/stopwatch.h"
#include "cli/terminal.h"
#include "cli/values.h"
#include "engine/options.h"

namespace drupe::cli {
namespace {

struct Target {
  SandboxInfo sandbox;
  std::unique_ptr<ShimClient> client;
};

/// Connects. A paused sandbox is resumed; the engine says so.
Result<Target> connect(Session& session, const std::string& name) {
  DRUPE_ASSIGN(Engine * engine, session.engine());
  Target target;
  DRUPE_ASSIGN(target.sandbox, engine->find(name));
  DRUPE_ASSIGN(target.client, engine->connect(target.sandbox.record.id, true));
  session.progress().finish();
  return target;
}

int finish(Session& session, const ForegroundResult& result, const SandboxInfo& sandbox,
           const Stopwatch& watch) {
  if (session.json) {
    session.print(run_report(result, sandbox.record.isolation, watch.finish()));
  } else if (const std::string reason = explain(result); !reason.empty()) {
    (void)write_all(STDERR_FILENO, "drupe: " + printable(reason) + "\n");
  }
  return exit_status(result);
}

int exec_in(Session& session, const CommandFlags& flags, const Arguments& words) {
  OpenRequest request;
  request.kind = OpenKind::kExec;
  ExecOptions& exec = request.exec;
  exec.exec_id = random_id();
  exec.argv.assign(words.begin() + 1, words.end());
  auto env = flags.environment();
  if (!env) return session.fail_with(env.error(), kOurFault);
  exec.env = *std::move(env);
  exec.cwd = flags.cwd;
  exec.user = flags.user;
  exec.tty = flags.tty;
  exec.stdin_open = flags.input;
  exec.timeout_ms = flags.timeout_ms;
  const TerminalSize size = terminal_size();
  exec.rows = size.rows;
  exec.columns = size.columns;
  if (auto good = check_exec(exec); !good) return session.fail_with(good.error(), kOurFault);

  Stopwatch watch;
  auto target = connect(session, words.front());
  if (!target) return session.fail_with(target.error(), kOurFault);
  watch.lap("connect");
  auto engine = session.engine();
  if (flags.detach) {
    std::optional<Error> why;
    auto started = start_and_leave(**engine, *target->client, request, why);
    if (!started) return session.fail_with(started.error(), kOurFault);
    return why ? session.fail_with(*why, *started) : *started;
  }
  auto result =
      run_foreground((*engine)->loop(), *target->client, request, {flags.input, flags.tty, session.json});
  watch.lap("command");
  if (!result) return session.fail_with(result.error(), kOurFault);
  return finish(session, *result, target->sandbox, watch);
}

}  // namespace

int run_command_exec(Session& session, const Arguments& arguments) {
  CommandFlags flags;
  FlagSet set("exec [FLAGS] SANDBOX [--] COMMAND [ARGUMENT...]",
              "Runs a command in a sandbox. A paused sandbox is resumed first.");
  flags.add_to(set, true);
  set.flag("--json", session.json, "Print one object, as 'drupe run --json' does");
  auto words = session.parse(set, arguments, Words::kFirstEndsFlags);
  if (!words) return words.error();
  if (words->size() >= 2 && (*words)[1] == "--") words->erase(words->begin() + 1);
  if (words->size() < 2) return session.usage_error(set, "A sandbox and a command are needed.");
  return exec_in(session, flags, *words);
}

int run_command_attach(Session& session, const Arguments& arguments) {
  bool no_input = false;
  FlagSet set(
      "attach [FLAGS] SANDBOX",
      "Shows what a sandbox's main command writes from now on, and forwards stdin and signals to it.");
  set.flag("--no-stdin", no_input, "Do not forward stdin");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->size() != 1) return session.usage_error(set, "One sandbox is needed.");
  Stopwatch watch;
  auto target = connect(session, words->front());
  if (!target) return session.fail_with(target.error(), kOurFault);
  if (!target->sandbox.record.main)
    return session.fail_with(
        {ErrorCode::kInvalidState, "Sandbox " + target->sandbox.record.name + " has no main command",
         "Run one in it with 'drupe exec'", 0},
        kOurFault);
  OpenRequest request;
  request.kind = OpenKind::kAttach;
  request.exec.exec_id = "main";
  const bool input = target->sandbox.record.main->stdin_open && !no_input;
  request.exec.stdin_open = input;
  auto result = run_foreground((*session.engine())->loop(), *target->client, request,
                               {input, target->sandbox.record.main->tty, false});
  if (!result) return session.fail_with(result.error(), kOurFault);
  if (auto ended = await_end(**session.engine(), target->sandbox.record.id, *result); !ended)
    return session.fail_with(ended.error(), kOurFault);
  return finish(session, *result, target->sandbox, watch);
}

}  // namespace drupe::cli
