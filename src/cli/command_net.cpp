// drupe net set, log, show.
#include <signal.h>

#include "cli/command_group.h"
#include "cli/commands.h"
#include "cli/each.h"
#include "cli/json_writer.h"
#include "cli/network_flags.h"
#include "cli/network_view.h"
#include "cli/signal_watch.h"
#include "cli/values.h"
#include "shim/messages.h"

namespace drupe::cli {
namespace {

constexpr auto kAnswer = std::chrono::seconds(5);
/// How often a follower asks: entries have no event of their own between processes.
constexpr auto kInterval = std::chrono::milliseconds(250);
/// Entries of a page; fewer when they do not fit into one frame.
constexpr std::uint32_t kPage = 50;

int set_network(Session& session, const Arguments& arguments) {
  NetworkFlags flags;
  FlagSet set("net set [FLAGS] SANDBOX...",
              "Replaces what sandboxes may reach. When it returns the new policy is in force, for open "
              "connections too. Published ports stay, but go with '--net none'.");
  flags.add_to(set, /*for_new=*/false);
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "A sandbox is needed.");
  if (!flags.given())
    return session.usage_error(set, "What it may reach is needed: --net none, for example.");
  return for_each_sandbox(session, *words,
                          [&flags](Engine& engine, const SandboxInfo& sandbox) -> Result<std::string> {
                            DRUPE_TRY(engine.set_network(sandbox.record.id, flags.options()));
                            return sandbox.record.name;
                          });
}

int show_network(Session& session, const Arguments& arguments) {
  FlagSet set("net show [FLAGS] SANDBOX", "Prints what a sandbox may reach.");
  set.flag("--json", session.json, "Print one object");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->size() != 1) return session.usage_error(set, "One sandbox is needed.");
  return for_each_sandbox(
      session, *words, [&session](Engine&, const SandboxInfo& sandbox) -> Result<std::string> {
        return session.json ? network_json(sandbox.record.network) : network_text(sandbox.record.network);
      });
}

Result<net::LogPage> read_page(ShimClient& client, std::uint64_t after) {
  for (std::uint32_t entries = kPage;; entries /= 2) {
    const auto reply = client.call(static_cast<std::uint16_t>(ShimRequest::kNetLog),
                                   net::ReadLog{after, entries}.encode(), Clock::now() + kAnswer);
    if (reply) return net::LogPage::decode(as_bytes(*reply));
    if (reply.error().code != ErrorCode::kLimit || entries <= 1) return std::unexpected(reply.error());
  }
}

/// Prints all that is there and says through `after` what was the last.
Status print_log(Session& session, ShimClient& client, std::uint64_t& after) {
  while (true) {
    DRUPE_ASSIGN(const net::LogPage page, read_page(client, after));
    if (page.lost > 0)
      session.note(std::to_string(page.lost) + " older entries are lost: the log keeps the newest");
    std::string text;
    for (const auto& line : page.lines) text += (session.json ? printable(line) : log_line(line)) + "\n";
    if (session.print(text) != 0) return fail_errno(ErrorCode::kHost, "The output is closed", EPIPE);
    // Lower than before: the process has been started again and counts from 1.
    after = page.last;
    if (page.lines.empty()) return {};
  }
}

Status follow_log(Session& session, Engine& engine, const std::string& id, bool follow) {
  DRUPE_ASSIGN(const auto client, engine.connect(id, false));
  bool ended = false;
  client->on_closed([&ended] { ended = true; });
  DRUPE_ASSIGN(const auto signals, SignalWatch::create(engine.loop(), {SIGINT, SIGTERM, SIGHUP},
                                                       [&ended](int) { ended = true; }));
  std::uint64_t after = 0;
  DRUPE_TRY(print_log(session, *client, after));
  while (follow && !ended) {
    DRUPE_TRY(engine.loop().run_until([&ended] { return ended; }, Clock::now() + kInterval));
    if (ended) break;
    auto printed = print_log(session, *client, after);
    if (!printed && !ended) return printed;
  }
  return {};
}

int print_network_log(Session& session, const Arguments& arguments) {
  bool follow = false;
  FlagSet set(
      "net log [FLAGS] SANDBOX",
      "Prints which names and connections of a running sandbox were allowed and refused, and by which "
      "rule.");
  set.flag("-f, --follow", follow, "Go on until the sandbox ends")
      .flag("--json", session.json, "Print an object a line");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->size() != 1) return session.usage_error(set, "One sandbox is needed.");
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), 1);
  auto sandbox = (*engine)->find(words->front());
  if (!sandbox) return session.fail_with(sandbox.error(), 1);
  auto printed = follow_log(session, **engine, sandbox->record.id, follow);
  if (printed) return 0;
  return printed.error().sys_errno == EPIPE ? 1 : session.fail_with(printed.error(), 1);
}

}  // namespace

int run_command_net(Session& session, const Arguments& arguments) {
  constexpr GroupCommand kCommands[] = {
      {"set", set_network}, {"show", show_network}, {"log", print_network_log}};
  const FlagSet set("net set|show|log ...", "What sandboxes may reach.");
  return run_group(session, set, "net", kCommands, arguments);
}

}  // namespace drupe::cli
