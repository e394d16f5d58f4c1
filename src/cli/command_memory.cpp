// drupe pause, resume, fork, prune.
#include <ctime>

#include "cli/commands.h"
#include "cli/each.h"
#include "cli/json_writer.h"
#include "cli/values.h"

namespace drupe::cli {
namespace {

std::int64_t realtime_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

int run_command_pause(Session& session, const Arguments& arguments) {
  FlagSet set("pause SANDBOX...",
              "Saves the memory, processes and disk of sandboxes, then frees what they use. 'drupe resume' "
              "continues them.");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "A sandbox is needed.");
  return for_each_sandbox(session, *words,
                          [](Engine& engine, const SandboxInfo& sandbox) -> Result<std::string> {
                            DRUPE_TRY(engine.pause(sandbox.record.id));
                            return sandbox.record.name;
                          });
}

int run_command_resume(Session& session, const Arguments& arguments) {
  bool cold = false;
  FlagSet set("resume [FLAGS] SANDBOX...", "Continues paused sandboxes where they were.");
  set.flag("--cold", cold,
           "Give the saved memory up and boot the disk (when the memory does not fit this machine any more)");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "A sandbox is needed.");
  return for_each_sandbox(session, *words,
                          [cold](Engine& engine, const SandboxInfo& sandbox) -> Result<std::string> {
                            DRUPE_TRY(engine.resume(sandbox.record.id, cold));
                            return sandbox.record.name;
                          });
}

int run_command_fork(Session& session, const Arguments& arguments) {
  std::uint32_t count = 1;
  std::vector<std::string> names;
  FlagSet set("fork [FLAGS] SANDBOX",
              "Makes copies of a running or paused sandbox, memory and processes included, and prints their "
              "ids. They share nothing that they write.");
  set.value(
         "-n, --count", "NUMBER",
         [&count](std::string_view text) -> Status {
           DRUPE_ASSIGN(const auto number, parse_number(text, 1, 1000));
           count = static_cast<std::uint32_t>(number);
           return {};
         },
         "How many; default 1")
      .list("--name", "NAME", names, "Name of a child; may be given once for each")
      .flag("--json", session.json, "Print a list of objects");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->size() != 1) return session.usage_error(set, "One sandbox is needed.");
  if (names.size() > count) count = static_cast<std::uint32_t>(names.size());
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), 1);
  auto parent = (*engine)->find(words->front());
  if (!parent) return session.fail_with(parent.error(), 1);
  auto children = (*engine)->fork(parent->record.id, count, names);
  if (!children) return session.fail_with(children.error(), 1);
  std::string out;
  JsonWriter json;
  json.begin_array();
  for (const SandboxInfo& child : *children) {
    out += child.record.id + "\n";
    json.begin_object()
        .field("id", std::string_view(child.record.id))
        .field("name", std::string_view(child.record.name))
        .field("parent", std::string_view(parent->record.id))
        .end_object();
  }
  json.end_array();
  return session.print(session.json ? json.str() + "\n" : out);
}

int run_command_prune(Session& session, const Arguments& arguments) {
  std::uint64_t older_than_ms = 0;
  std::string pattern;
  bool dry_run = false;
  bool force = false;
  FlagSet set("prune [FLAGS]",
              "Removes sandboxes that have ended or were never started, unused base snapshots, and what "
              "killed processes left behind.");
  set.value(
         "--older-than", "DURATION",
         [&older_than_ms](std::string_view text) -> Status {
           DRUPE_ASSIGN(older_than_ms, parse_duration_ms(text));
           return {};
         },
         "Only sandboxes that ended (or were made) this long ago, and base snapshots unused for as long")
      .text("--name", "GLOB", pattern, "Only sandboxes with such a name; base snapshots stay")
      .flag("--dry-run", dry_run, "Only say what would be removed")
      // Docker asks before it prunes unless -f is given; here the command itself is the answer.
      .flag("-f, --force", force, "");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (!words->empty()) return session.usage_error(set, "prune takes no words.");
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), 1);
  auto all = (*engine)->list();
  if (!all) return session.fail_with(all.error(), 1);
  int status = 0;
  const std::int64_t newest = realtime_ns() - static_cast<std::int64_t>(older_than_ms) * 1'000'000;
  for (const SandboxInfo& sandbox : *all) {
    const SandboxRecord& record = sandbox.record;
    if (sandbox.alive || record.state == SandboxState::kPaused || record.state == SandboxState::kRunning)
      continue;
    if (std::max(record.created_ns, record.finished_ns) > newest && older_than_ms != 0) continue;
    if (!pattern.empty() && !glob_match(pattern, record.name)) continue;
    if (!dry_run) {
      auto removed = (*engine)->remove(record.id, false);
      if (!removed) {
        status = session.fail_with(removed.error(), 1);
        continue;
      }
    }
    session.print(record.name + "\n");
  }
  if (!pattern.empty()) return status;
  auto report = (*engine)->prune_storage(std::chrono::seconds(older_than_ms / 1000),
                                         dry_run ? Prune::kOnlyCount : Prune::kRemove);
  if (!report) return session.fail_with(report.error(), 1);
  if (report->bases + report->kernels + report->leftovers > 0)
    session.note(std::string(dry_run ? "Would remove " : "Removed ") + std::to_string(report->bases) +
                 " base snapshots, " + std::to_string(report->kernels) + " kernels and " +
                 std::to_string(report->leftovers) + " leftovers: " + format_size(report->bytes));
  return status;
}

}  // namespace drupe::cli
