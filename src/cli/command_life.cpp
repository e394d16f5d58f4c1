// drupe start, stop, restart, kill, wait, rm, rename.
#include <signal.h>

#include "base/files.h"
#include "cli/commands.h"
#include "cli/each.h"
#include "cli/foreground.h"
#include "cli/values.h"

namespace drupe::cli {
namespace {

constexpr auto kDefaultGrace = std::chrono::milliseconds(10'000);

/// -t/--time in seconds as Docker has it, 0 included, and -s/--signal.
struct StopFlags {
  std::chrono::milliseconds grace = kDefaultGrace;
  int signal = 0;
  void add_to(FlagSet& flags) {
    flags
        .value(
            "-t, --time", "SECONDS",
            [this](std::string_view text) -> Status {
              DRUPE_ASSIGN(const auto seconds, parse_number(text, 0, 86400));
              grace = std::chrono::seconds(seconds);
              return {};
            },
            "Time the main command has before it is killed; default 10")
        .value(
            "-s, --signal", "SIGNAL",
            [this](std::string_view text) -> Status {
              DRUPE_ASSIGN(signal, parse_signal(text));
              return {};
            },
            "Signal to send first; default: the image's, else TERM");
  }
};

Status restart(Engine& engine, const SandboxInfo& sandbox, const StopFlags& flags) {
  if (sandbox.alive) DRUPE_TRY(engine.stop(sandbox.record.id, flags.signal, flags.grace));
  DRUPE_TRY(engine.start(sandbox.record.id, false, false));
  return {};
}

Status send_signal(Engine& engine, const SandboxInfo& sandbox, int number) {
  if (sandbox.record.state == SandboxState::kPaused || !sandbox.alive)
    return fail(ErrorCode::kInvalidState, "Sandbox " + sandbox.record.name + " is not running");
  // Without a main command there is nothing to receive a signal but the sandbox itself.
  if (!sandbox.record.main) return engine.stop(sandbox.record.id, number, std::chrono::milliseconds(0));
  DRUPE_ASSIGN(auto client, engine.connect(sandbox.record.id, false));
  SignalExecRequest request;
  request.exec_id = "main";
  request.signal = number;
  request.tree = number == SIGKILL;
  auto answer = client->call(static_cast<std::uint16_t>(RequestKind::kSignalExec), request.encode(),
                             Clock::now() + std::chrono::seconds(10));
  // The signal may end the command, and with it the sandbox, before the answer is out.
  if (!answer && answer.error().code != ErrorCode::kVmLost) return std::unexpected(std::move(answer).error());
  return {};
}

/// start -a: attaches before the main command starts, so no output is missed.
int start_attached(Session& session, const std::string& word, bool input) {
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), kOurFault);
  auto sandbox = (*engine)->find(word);
  if (!sandbox) return session.fail_with(sandbox.error(), kOurFault);
  auto started = (*engine)->start(sandbox->record.id, true, false);
  if (!started) return session.fail_with(started.error(), kOurFault);
  auto client = (*engine)->connect(sandbox->record.id, false);
  if (!client) return session.fail_with(client.error(), kOurFault);
  OpenRequest request;
  request.kind = OpenKind::kAttach;
  request.exec.exec_id = "main";
  request.exec.stdin_open = input;
  session.progress().finish();
  const bool tty = sandbox->record.main && sandbox->record.main->tty;
  auto result = run_foreground((*engine)->loop(), **client, request, {input, tty, false});
  if (!result) return session.fail_with(result.error(), kOurFault);
  if (const std::string reason = explain(*result); !reason.empty())
    (void)write_all(STDERR_FILENO, "drupe: " + printable(reason) + "\n");
  if (auto ended = await_end(**engine, sandbox->record.id, *result); !ended)
    return session.fail_with(ended.error(), kOurFault);
  return exit_status(*result);
}

}  // namespace

int run_command_start(Session& session, const Arguments& arguments) {
  bool attach = false;
  bool input = false;
  FlagSet set("start [FLAGS] SANDBOX...",
              "Starts sandboxes that were created or have ended. Their disks are as they were left.");
  set.flag("-a, --attach", attach, "Follow the main command (one sandbox)")
      .flag("-i, --interactive", input, "With -a: forward stdin");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->empty() || ((attach || input) && words->size() > 1))
    return session.usage_error(
        set, words->empty() ? "A sandbox is needed." : "Only one sandbox can be attached to.");
  if (attach || input) return start_attached(session, words->front(), input);
  return for_each_sandbox(session, *words,
                          [](Engine& engine, const SandboxInfo& sandbox) -> Result<std::string> {
                            DRUPE_TRY(engine.start(sandbox.record.id, false, false));
                            return sandbox.record.name;
                          });
}

int run_command_stop(Session& session, const Arguments& arguments) {
  StopFlags flags;
  FlagSet set("stop [FLAGS] SANDBOX...",
              "Ends sandboxes in good order. Their disks are kept; 'drupe start' continues with them.");
  flags.add_to(set);
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "A sandbox is needed.");
  return for_each_sandbox(session, *words,
                          [&](Engine& engine, const SandboxInfo& sandbox) -> Result<std::string> {
                            DRUPE_TRY(engine.stop(sandbox.record.id, flags.signal, flags.grace));
                            return sandbox.record.name;
                          });
}

int run_command_restart(Session& session, const Arguments& arguments) {
  StopFlags flags;
  FlagSet set("restart [FLAGS] SANDBOX...", "Stops and starts sandboxes.");
  flags.add_to(set);
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "A sandbox is needed.");
  return for_each_sandbox(session, *words,
                          [&](Engine& engine, const SandboxInfo& sandbox) -> Result<std::string> {
                            DRUPE_TRY(restart(engine, sandbox, flags));
                            return sandbox.record.name;
                          });
}

int run_command_kill(Session& session, const Arguments& arguments) {
  int number = SIGKILL;
  FlagSet set("kill [FLAGS] SANDBOX...",
              "Sends a signal to the main command of sandboxes; one without a main command ends.");
  set.value(
      "-s, --signal", "SIGNAL",
      [&number](std::string_view text) -> Status {
        DRUPE_ASSIGN(number, parse_signal(text));
        return {};
      },
      "Default: KILL");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "A sandbox is needed.");
  return for_each_sandbox(session, *words,
                          [&](Engine& engine, const SandboxInfo& sandbox) -> Result<std::string> {
                            DRUPE_TRY(send_signal(engine, sandbox, number));
                            return sandbox.record.name;
                          });
}

int run_command_wait(Session& session, const Arguments& arguments) {
  FlagSet set("wait SANDBOX...",
              "Waits until each sandbox has ended and prints the exit status of its main command.");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "A sandbox is needed.");
  return for_each_sandbox(session, *words,
                          [](Engine& engine, const SandboxInfo& sandbox) -> Result<std::string> {
                            DRUPE_ASSIGN(const SandboxInfo ended, engine.wait(sandbox.record.id));
                            if (ended.record.main_exit)
                              return std::to_string(exit_status(*ended.record.main_exit));
                            return std::string(ended.record.cause == EndCause::kStopped ? "0" : "125");
                          });
}

int run_command_rm(Session& session, const Arguments& arguments) {
  bool force = false;
  FlagSet set("rm [FLAGS] SANDBOX...", "Removes sandboxes with their disks and saved memory.");
  set.flag("-f, --force", force, "Running ones too");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "A sandbox is needed.");
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), 1);
  int status = 0;
  for (const std::string& word : *words) {
    // By id and not through its record, so that one with a damaged record can be removed too.
    const auto id = (*engine)->resolve(word);
    const auto removed = id ? (*engine)->remove(*id, force) : Status(std::unexpected(id.error()));
    session.progress().finish();
    if (!removed)
      status = session.fail_with(removed.error(), 1);
    else if (session.print(word + "\n") != 0)
      return 1;
  }
  return status;
}

int run_command_rename(Session& session, const Arguments& arguments) {
  FlagSet set("rename SANDBOX NAME", "Gives a sandbox another name.");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->size() != 2) return session.usage_error(set, "A sandbox and its new name are needed.");
  return for_each_sandbox(session, {words->front()},
                          [&](Engine& engine, const SandboxInfo& sandbox) -> Result<std::string> {
                            DRUPE_TRY(engine.rename(sandbox.record.id, words->back()));
                            return std::string();
                          });
}

}  // namespace drupe::cli
