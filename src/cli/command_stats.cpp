// drupe stats, drupe top.
#include <signal.h>

#include "cli/commands.h"
#include "cli/each.h"
#include "cli/json_writer.h"
#include "cli/signal_watch.h"
#include "cli/table.h"
#include "cli/values.h"

namespace drupe::cli {
namespace {

constexpr auto kAnswer = std::chrono::seconds(5);
constexpr auto kInterval = std::chrono::seconds(1);

/// One sandbox at one moment.
struct Sample {
  SandboxInfo sandbox;
  GuestStats guest;
  ShimInfo shim;
  std::optional<net::NetCounters> network;  ///< Absent: no network.
  Clock::time_point at;
};

Result<Sample> take_sample(Engine& engine, const SandboxInfo& sandbox) {
  DRUPE_ASSIGN(auto client, engine.connect(sandbox.record.id, false));
  Sample sample;
  sample.sandbox = sandbox;
  DRUPE_ASSIGN(const std::string guest,
               client->call(static_cast<std::uint16_t>(RequestKind::kStats), "", Clock::now() + kAnswer));
  DRUPE_ASSIGN(sample.guest, GuestStats::decode(as_bytes(guest)));
  DRUPE_ASSIGN(const std::string info,
               client->call(static_cast<std::uint16_t>(ShimRequest::kInfo), "", Clock::now() + kAnswer));
  DRUPE_ASSIGN(sample.shim, ShimInfo::decode(as_bytes(info)));
  if (sandbox.record.network.mode != NetworkMode::kNone) {
    const auto counters =
        client->call(static_cast<std::uint16_t>(ShimRequest::kNetCounters), "", Clock::now() + kAnswer);
    // Its process may be on its way back.
    if (counters)
      if (auto decoded = net::NetCounters::decode(as_bytes(*counters))) sample.network = *decoded;
  }
  sample.at = Clock::now();
  return sample;
}

using Samples = std::map<std::string, Sample>;

/// Processor time of user work in per cent of one processor since the earlier sample; negative: not known.
double cpu_percent(const Sample& now, const Samples& before) {
  const auto earlier = before.find(now.sandbox.record.id);
  if (earlier == before.end()) return -1;
  const auto wall = std::chrono::duration<double, std::nano>(now.at - earlier->second.at).count();
  const double used =
      static_cast<double>(now.guest.cpu_user_ns) - static_cast<double>(earlier->second.guest.cpu_user_ns);
  return wall > 0 && used >= 0 ? 100.0 * used / wall : -1;
}

std::string table_of(const Samples& samples, const Samples& before) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [id, sample] : samples) {
    const double percent = cpu_percent(sample, before);
    char cpu[32] = "-";
    if (percent >= 0) std::snprintf(cpu, sizeof cpu, "%.1f %%", percent);
    const std::uint64_t disk_used =
        sample.guest.disk_total - std::min(sample.guest.disk_free, sample.guest.disk_total);
    rows.push_back({id, sample.sandbox.record.name, cpu,
                    format_size(sample.guest.memory_user) + " / " + format_size(sample.guest.memory_total),
                    format_size(disk_used) + " / " + format_size(sample.guest.disk_total),
                    std::to_string(sample.guest.processes),
                    sample.network ? format_size(sample.network->bytes_in) + " / " +
                                         format_size(sample.network->bytes_out)
                                   : "-",
                    format_size(sample.shim.guest_private_bytes + sample.shim.hypervisor_private_bytes +
                                sample.shim.shim_private_bytes)});
  }
  return format_table(
      {"SANDBOX", "NAME", "CPU", "MEMORY", "DISK", "PROCESSES", "NET IN / OUT", "HOST MEMORY"}, rows);
}

void write_network(JsonWriter& json, const std::optional<net::NetCounters>& network) {
  if (!network) {
    json.null();
    return;
  }
  json.begin_object()
      .field("bytes_in", network->bytes_in)
      .field("bytes_out", network->bytes_out)
      .field("connections", network->connections)
      .field("refused", network->refused)
      .field("open_connections", network->open_connections)
      .field("dropped_frames", network->dropped_frames)
      .end_object();
}

std::string json_of(const Samples& samples, const Samples& before) {
  JsonWriter json;
  json.begin_array();
  for (const auto& [id, sample] : samples) {
    const double percent = cpu_percent(sample, before);
    json.begin_object()
        .field("id", std::string_view(id))
        .field("name", std::string_view(sample.sandbox.record.name));
    json.key("cpu_percent");
    if (percent >= 0) {
      json.real(percent);
    } else {
      json.null();
    }
    json.field("cpu_user_ns", sample.guest.cpu_user_ns)
        .field("memory_user_bytes", sample.guest.memory_user)
        .field("memory_available_bytes", sample.guest.memory_available)
        .field("memory_total_bytes", sample.guest.memory_total)
        .field("disk_free_bytes", sample.guest.disk_free)
        .field("disk_total_bytes", sample.guest.disk_total)
        .field("processes", sample.guest.processes)
        .field("oom_kills", sample.guest.oom_kills)
        .field("uptime_ns", sample.guest.uptime_ns)
        .key("network");
    write_network(json, sample.network);
    json.key("host")
        .begin_object()
        .field("guest_private_bytes", sample.shim.guest_private_bytes)
        .field("hypervisor_private_bytes", sample.shim.hypervisor_private_bytes)
        .field("shim_private_bytes", sample.shim.shim_private_bytes)
        .field("cpu_ns", sample.shim.cpu_ns)
        .end_object()
        .end_object();
  }
  json.end_array();
  return json.str() + "\n";
}

/// Of the named sandboxes, or of all that run.
Result<Samples> sample_all(Engine& engine, const Arguments& words) {
  std::vector<SandboxInfo> sandboxes;
  if (words.empty()) {
    DRUPE_ASSIGN(sandboxes, engine.list());
    std::erase_if(sandboxes, [](const SandboxInfo& sandbox) { return !sandbox.alive; });
  }
  for (const auto& word : words) {
    DRUPE_ASSIGN(auto sandbox, engine.find(word));
    if (!sandbox.alive)
      return fail(ErrorCode::kInvalidState, "Sandbox " + sandbox.record.name + " is not running");
    sandboxes.push_back(std::move(sandbox));
  }
  Samples samples;
  for (const auto& sandbox : sandboxes) {
    auto sample = take_sample(engine, sandbox);
    // One that ended between the listing and the question is no error, unless it was asked for by name.
    if (!sample && !words.empty()) return std::unexpected(std::move(sample).error());
    if (sample) samples.emplace(sandbox.record.id, *std::move(sample));
  }
  return samples;
}

}  // namespace

int run_command_stats(Session& session, const Arguments& arguments) {
  bool once = false;
  FlagSet set("stats [FLAGS] [SANDBOX...]",
              "Shows what running sandboxes use, again every second until Ctrl-C.");
  set.flag("--no-stream", once, "Only once")
      .flag("--json", session.json, "Print a list of objects, a line each time");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), 1);
  bool left = false;
  auto signals =
      SignalWatch::create((*engine)->loop(), {SIGINT, SIGTERM, SIGHUP}, [&left](int) { left = true; });
  if (!signals) return session.fail_with(signals.error(), 1);
  const bool redraw = !once && !session.json && ::isatty(STDOUT_FILENO) == 1;
  Samples before;
  while (!left) {
    auto samples = sample_all(**engine, *words);
    if (!samples) return session.fail_with(samples.error(), 1);
    const std::string text = session.json ? json_of(*samples, before) : table_of(*samples, before);
    // The processor's share needs two looks.
    const bool shown = !once || !before.empty() || samples->empty();
    if (shown && session.print((redraw ? "\x1b[H\x1b[J" : "") + text) != 0) return 1;
    if (once && shown) return 0;
    before = *std::move(samples);
    auto waited = (*engine)->loop().run_until([&left] { return left; },
                                              Clock::now() + (once ? kInterval / 4 : kInterval));
    if (!waited) return session.fail_with(waited.error(), 1);
  }
  return 0;
}

int run_command_top(Session& session, const Arguments& arguments) {
  FlagSet set("top [FLAGS] SANDBOX", "Lists the processes in a sandbox.");
  set.flag("--json", session.json, "Print a list of objects");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->size() != 1) return session.usage_error(set, "One sandbox is needed.");
  return for_each_sandbox(
      session, *words, [&](Engine& engine, const SandboxInfo& sandbox) -> Result<std::string> {
        DRUPE_ASSIGN(auto client, engine.connect(sandbox.record.id, false));
        DRUPE_ASSIGN(
            const std::string reply,
            client->call(static_cast<std::uint16_t>(RequestKind::kProcesses), "", Clock::now() + kAnswer));
        DRUPE_ASSIGN(const ProcessList list, ProcessList::decode(as_bytes(reply)));
        if (list.truncated) session.note("There are more processes than could be listed");
        std::vector<std::vector<std::string>> rows;
        JsonWriter json;
        json.begin_array();
        for (const GuestProcess& process : list.processes) {
          rows.push_back({std::to_string(process.pid), std::to_string(process.parent),
                          std::to_string(process.uid), std::string(1, process.state),
                          format_size(process.rss_bytes), process.command});
          json.begin_object()
              .field("pid", process.pid)
              .field("parent", process.parent)
              .field("uid", process.uid)
              .field("state", std::string_view(&process.state, 1))
              .field("cpu_ns", process.cpu_ns)
              .field("rss_bytes", process.rss_bytes)
              .field("command", std::string_view(process.command))
              .field("exec_id", std::string_view(process.exec_id))
              .end_object();
        }
        json.end_array();
        std::string text = session.json
                               ? json.str()
                               : format_table({"PID", "PARENT", "UID", "STATE", "MEMORY", "COMMAND"}, rows);
        if (text.ends_with('\n')) text.pop_back();
        return text;
      });
}

}  // namespace drupe::cli
