// drupe run, drupe create.
#include <unistd.h>

#include "base/files.h"
#include "cli/cancel_scope.h"
#include "cli/commands.h"
#include "cli/detached.h"
#include "cli/foreground.h"
#include "cli/run_report.h"
#include "cli/sandbox_flags.h"
#include "cli/stopwatch.h"
#include "cli/transfer.h"
#include "cli/values.h"

namespace drupe::cli {
namespace {

struct CopySpec {
  std::string source, target;
};

/// "SRC:DEST", cut at the last colon that is followed by something.
Result<CopySpec> parse_copy(const std::string& text, std::string_view flag) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size())
    return fail(ErrorCode::kInvalidArgument,
                std::string(flag) + ": '" + printable(text) + "' is not SRC:DEST");
  return CopySpec{text.substr(0, colon), text.substr(colon + 1)};
}

/// One run in the foreground.
class Run {
 public:
  Run(Session& session, const SandboxFlags& flags, SandboxOptions options)
      : session_(session), flags_(flags), options_(std::move(options)) {}
  int run();

 private:
  Status prepare();
  Result<ForegroundResult> command();
  Status settle(const ForegroundResult& outcome);
  int finish(const Result<ForegroundResult>& outcome, const Status& settled);
  [[nodiscard]] bool keeps_machine() const { return !outgoing_.empty(); }

  Session& session_;
  const SandboxFlags& flags_;
  SandboxOptions options_;
  std::vector<CopySpec> incoming_, outgoing_;
  Engine* engine_ = nullptr;
  SandboxInfo sandbox_;
  std::unique_ptr<ShimClient> client_;
  Stopwatch watch_;
};

Status Run::prepare() {
  for (const auto& text : flags_.copy_in) {
    DRUPE_ASSIGN(auto spec, parse_copy(text, "--copy-in"));
    DRUPE_TRY(check_copy_source(spec.source));
    incoming_.push_back(std::move(spec));
  }
  for (const auto& text : flags_.copy_out) {
    DRUPE_ASSIGN(auto spec, parse_copy(text, "--copy-out"));
    DRUPE_TRY(check_copy_target(spec.target));
    outgoing_.push_back(std::move(spec));
  }
  DRUPE_ASSIGN(engine_, session_.engine());
  options_.auto_remove = !flags_.keep;
  watch_.lap("open");
  {
    const CancelScope scope;  // A pull can be stopped in good order.
    DRUPE_ASSIGN(sandbox_, engine_->create(options_));
  }
  if (!sandbox_.record.main)
    return fail(ErrorCode::kInvalidArgument, "The image " + options_.image + " has no command of its own",
                "Name one: drupe run " + options_.image + " COMMAND");
  watch_.lap("create");
  DRUPE_ASSIGN(const Timings started, engine_->start(sandbox_.record.id, true, true));
  watch_.lap("start");
  watch_.add_parts("start", started);
  DRUPE_ASSIGN(client_, engine_->connect(sandbox_.record.id, false));
  for (const CopySpec& spec : incoming_)
    DRUPE_TRY(copy_to_guest(engine_->loop(), *client_, spec.source, spec.target, CopyOptions{}));
  watch_.lap("connect");
  return {};
}

Result<ForegroundResult> Run::command() {
  session_.progress().finish();
  OpenRequest request;
  if (keeps_machine()) {
    // The sandbox ends with its main command, and files are to be fetched after it: so it runs as an ordinary
    // command.
    request.kind = OpenKind::kExec;
    request.exec = *sandbox_.record.main;
    request.exec.exec_id = "run";
  } else {
    request.kind = OpenKind::kAttach;
    request.exec.exec_id = "main";
    request.exec.stdin_open = flags_.command.input;
  }
  ForegroundOptions options;
  options.input = flags_.command.input;
  options.tty = flags_.command.tty;
  options.capture = session_.json;
  auto result = run_foreground(engine_->loop(), *client_, request, options);
  watch_.lap("command");
  return result;
}

Status Run::settle(const ForegroundResult& outcome) {
  Status copied;
  for (const CopySpec& spec : outgoing_) {
    auto one = copy_from_guest(engine_->loop(), *client_, spec.source, spec.target, CopyOptions{});
    if (copied) copied = std::move(one);
  }
  if (!flags_.keep) return copied;
  const auto ended = keeps_machine() ? engine_->stop(sandbox_.record.id, 0, std::chrono::seconds(10))
                                     : await_end(*engine_, sandbox_.record.id, outcome);
  return copied ? ended : copied;
}

int Run::finish(const Result<ForegroundResult>& outcome, const Status& settled) {
  session_.progress().finish();
  if (!outcome) {
    if (session_.json) session_.print(failed_run_report(outcome.error(), watch_.finish()));
    const bool cancelled = outcome.error().code == ErrorCode::kCancelled && CancelScope::status() != 0;
    return session_.fail_with(outcome.error(), cancelled ? CancelScope::status() : kOurFault);
  }
  if (session_.json) {
    ForegroundResult told = *outcome;
    if (!settled && !told.error) told.error = settled.error();
    session_.print(run_report(told, sandbox_.record.isolation, watch_.finish()));
  }
  const std::string reason = explain(*outcome);
  if (!reason.empty() && !session_.json) (void)write_all(STDERR_FILENO, "drupe: " + printable(reason) + "\n");
  const int status = exit_status(*outcome);
  if (settled) return status;
  // The command's own failure says more than that of what came after it.
  return session_.fail_with(settled.error(), status != 0 ? status : kOurFault);
}

int Run::run() {
  Result<ForegroundResult> outcome = std::unexpected(Error{});
  Status settled;
  auto prepared = prepare();
  if (prepared) {
    if (auto now = engine_->find(sandbox_.record.id)) sandbox_.record.isolation = now->record.isolation;
    outcome = command();
    if (outcome && outcome->left_by_signal == 0) settled = settle(*outcome);
  } else {
    outcome = std::unexpected(std::move(prepared).error());
  }
  client_.reset();
  // Where the main command ran as such, its shim removes the sandbox by itself, after this program has gone.
  const bool ours = keeps_machine() || !outcome || outcome->left_by_signal != 0;
  if (ours && options_.auto_remove && !sandbox_.record.id.empty())
    (void)engine_->remove(sandbox_.record.id, true);
  return finish(outcome, settled);
}

/// Attaches, which starts the main command, and leaves. 0, or the status of one that could not start.
Result<int> start_main(Engine& engine, const std::string& id, std::optional<Error>& why) {
  DRUPE_ASSIGN(const auto client, engine.connect(id, false));
  OpenRequest request;
  request.kind = OpenKind::kAttach;
  request.exec.exec_id = "main";
  return start_and_leave(engine, *client, request, why);
}

int run_detached(Session& session, const SandboxFlags& flags, SandboxOptions options) {
  options.detached = true;
  options.auto_remove = flags.remove;
  if (!flags.copy_out.empty())
    return session.fail_with({ErrorCode::kInvalidArgument, "--copy-out needs a run in the foreground",
                              "Use 'drupe cp' after 'drupe wait'", 0},
                             kOurFault);
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), kOurFault);
  auto made = (*engine)->create(options);
  if (!made) return session.fail_with(made.error(), kOurFault);
  const std::string id = made->record.id;
  auto started = (*engine)->start(id, made->record.main.has_value(), false);
  if (!started) {
    if (options.auto_remove) (void)(*engine)->remove(id, true);
    return session.fail_with(started.error(), kOurFault);
  }
  if (made->record.main) {
    std::optional<Error> why;
    const auto status = start_main(**engine, id, why);
    if (!status) return session.fail_with(status.error(), kOurFault);
    if (why) return session.fail_with(*why, *status);
  }
  return session.print(id + "\n");
}

}  // namespace

int run_command_run(Session& session, const Arguments& arguments) {
  SandboxFlags flags;
  FlagSet set("run [FLAGS] IMAGE [--] [COMMAND [ARGUMENT...]]",
              "Runs a command in a new sandbox, a virtual machine of its own. Its output and exit status are "
              "this command's.");
  flags.add_to(set, true);
  set.flag("--json", session.json,
           "Print one object: exit_code, signal, timed_out, oom_killed, stdout, stderr, timings, ...");
  auto words = session.parse(set, arguments, Words::kFirstEndsFlags);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "An image is needed.");
  auto options = flags.options(*words);
  if (!options) return session.fail_with(options.error(), kOurFault);
  if (flags.command.detach) return run_detached(session, flags, *std::move(options));
  return Run(session, flags, *std::move(options)).run();
}

int run_command_create(Session& session, const Arguments& arguments) {
  SandboxFlags flags;
  FlagSet set("create [FLAGS] IMAGE [--] [COMMAND [ARGUMENT...]]",
              "Makes a sandbox without starting it and prints its id. Without a command and without one in "
              "the image it idles.");
  flags.add_to(set, false);
  auto words = session.parse(set, arguments, Words::kFirstEndsFlags);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "An image is needed.");
  auto options = flags.options(*words);
  if (!options) return session.fail_with(options.error(), kOurFault);
  options->detached = true;
  options->auto_remove = flags.remove;
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), kOurFault);
  auto made = (*engine)->create(*options);
  if (!made) return session.fail_with(made.error(), kOurFault);
  return session.print(made->record.id + "\n");
}

}  // namespace drupe::cli
