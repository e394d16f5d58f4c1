// drupe ps, drupe inspect.
#include <algorithm>
#include <ctime>

#include "cli/commands.h"
#include "cli/each.h"
#include "cli/json_writer.h"
#include "cli/network_view.h"
#include "cli/table.h"
#include "cli/values.h"

namespace drupe::cli {
namespace {

std::int64_t realtime_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

bool is_active(const SandboxInfo& sandbox) {
  return sandbox.alive || sandbox.record.state == SandboxState::kPaused;
}

/// "Running 5 minutes", "Exited (3) 2 hours ago".
std::string describe_state(const SandboxInfo& sandbox, std::int64_t now) {
  const SandboxRecord& record = sandbox.record;
  switch (record.state) {
    case SandboxState::kCreated:
      return "Created";
    case SandboxState::kRunning:
      return "Running " + format_age(now - record.started_ns);
    case SandboxState::kPaused:
      return "Paused " + format_age(now - record.paused_ns);
    case SandboxState::kExited:
      break;
  }
  std::string how(to_string(record.cause));
  if (record.cause == EndCause::kFinished && record.main_exit) {
    const ExitFacts& facts = *record.main_exit;
    how = facts.timed_out    ? "timed out"
          : facts.signal > 0 ? "signal " + signal_name(facts.signal)
                             : std::to_string(facts.exit_code);
  }
  return "Exited (" + how + ") " + format_age(now - record.finished_ns) + " ago";
}

std::string command_text(const SandboxRecord& record) {
  if (!record.main) return "-";
  std::string text;
  for (const auto& word : record.main->argv) text += (text.empty() ? "" : " ") + word;
  constexpr std::size_t kShown = 32;
  text = printable(text);
  // Cut between characters.
  if (text.size() > kShown) {
    std::size_t end = kShown;
    while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + "...";
  }
  return text;
}

void write_summary(JsonWriter& json, const SandboxInfo& sandbox) {
  const SandboxRecord& record = sandbox.record;
  json.begin_object()
      .field("id", std::string_view(record.id))
      .field("name", std::string_view(record.name))
      .field("image", std::string_view(record.image_name))
      .field("image_id", std::string_view(record.image_id))
      .field("state", to_string(record.state))
      .field("cause", to_string(record.cause))
      .field("alive", sandbox.alive);
  json.key("exit_code");
  if (record.main_exit && record.main_exit->exit_code >= 0) {
    json.number(record.main_exit->exit_code);
  } else {
    json.null();
  }
  json.field("created", std::string_view(format_time(record.created_ns)))
      .field("started", std::string_view(format_time(record.started_ns)))
      .field("finished", std::string_view(format_time(record.finished_ns)))
      .field("paused", std::string_view(format_time(record.paused_ns)))
      .field("cpus", record.cpus)
      .field("memory_mib", record.shape.memory_mib)
      .field("disk_bytes", record.disk_bytes)
      .field("isolation", std::string_view(record.isolation))
      .key("network")
      .raw(network_json(record.network))
      .field("host_ca", record.host_ca)
      .field("parent", std::string_view(record.parent_id))
      .field("command", record.main ? record.main->argv : std::vector<std::string>{});
  json.key("labels").begin_object();
  for (const auto& [key, value] : record.labels) json.field(key, std::string_view(value));
  json.end_object().end_object();
}

void write_networks(JsonWriter& json, const std::string& id, const std::vector<NetworkInfo>& networks) {
  json.key("networks").begin_array();
  for (const NetworkInfo& network : networks)
    for (const auto& member : network.members)
      if (member.sandbox == id)
        json.begin_object()
            .field("id", std::string_view(network.id))
            .field("name", std::string_view(network.name))
            .field("address", std::string_view(member.address))
            .end_object();
  json.end_array();
}

/// One --filter: name=GLOB, state=WORD, image=NAME, label=KEY[=VALUE].
struct Filter {
  std::string key, value;
  [[nodiscard]] bool matches(const SandboxRecord& record) const {
    if (key == "name") return glob_match(value, record.name) || record.name.find(value) != std::string::npos;
    if (key == "state" || key == "status") return to_string(record.state) == value;
    if (key == "image") return record.image_name == value;
    const auto equals = value.find('=');
    const auto label = record.labels.find(value.substr(0, equals));
    return label != record.labels.end() &&
           (equals == std::string::npos || label->second == value.substr(equals + 1));
  }
};

Result<Filter> parse_filter(std::string_view text) {
  const auto equals = text.find('=');
  Filter filter{std::string(text.substr(0, equals)),
                equals == std::string_view::npos ? "" : std::string(text.substr(equals + 1))};
  for (const char* known : {"name", "state", "status", "image", "label"})
    if (filter.key == known && equals != std::string_view::npos) return filter;
  return fail(ErrorCode::kInvalidArgument, "'" + printable(text) + "' is not a filter",
              "Use name=GLOB, state=WORD, image=NAME or label=KEY[=VALUE]");
}

}  // namespace

int run_command_ps(Session& session, const Arguments& arguments) {
  bool all = false;
  bool only_ids = false;
  std::vector<Filter> filters;
  FlagSet set("ps [FLAGS]", "Lists sandboxes that run or are paused.");
  set.flag("-a, --all", all, "Those that were only created or have ended, too")
      .flag("--ids", only_ids, "Only ids")
      .value(
          "-f, --filter", "KEY=VALUE",
          [&filters](std::string_view text) -> Status {
            DRUPE_ASSIGN(auto filter, parse_filter(text));
            filters.push_back(std::move(filter));
            return {};
          },
          "Only sandboxes with this name=GLOB, state=WORD, image=NAME or label=KEY[=VALUE]")
      .flag("--json", session.json, "Print a list of objects");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (!words->empty()) return session.usage_error(set, "ps takes no words.");
  // Docker's -q prints ids here.
  only_ids = only_ids || session.quiet;
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), 1);
  auto found = (*engine)->list();
  if (!found) return session.fail_with(found.error(), 1);
  std::erase_if(*found, [&](const SandboxInfo& sandbox) {
    if (!all && filters.empty() && !is_active(sandbox)) return true;
    return !std::ranges::all_of(filters,
                                [&](const Filter& filter) { return filter.matches(sandbox.record); });
  });
  std::ranges::sort(*found, std::greater{},
                    [](const SandboxInfo& sandbox) { return sandbox.record.created_ns; });

  if (session.json) {
    JsonWriter json;
    json.begin_array();
    for (const auto& sandbox : *found) write_summary(json, sandbox);
    json.end_array();
    return session.print(json.str() + "\n");
  }
  if (only_ids) {
    std::string out;
    for (const auto& sandbox : *found) out += sandbox.record.id + "\n";
    return session.print(out);
  }
  const std::int64_t now = realtime_ns();
  std::vector<std::vector<std::string>> rows;
  for (const auto& sandbox : *found) {
    const SandboxRecord& record = sandbox.record;
    rows.push_back({record.id, record.name, record.image_name, command_text(record),
                    format_age(now - record.created_ns) + " ago", describe_state(sandbox, now)});
  }
  return session.print(format_table({"SANDBOX", "NAME", "IMAGE", "COMMAND", "CREATED", "STATE"}, rows));
}

int run_command_inspect(Session& session, const Arguments& arguments) {
  FlagSet set("inspect SANDBOX...", "Prints everything about sandboxes as a list of JSON objects.");
  set.flag("--json", session.json, "");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "A sandbox is needed.");
  std::vector<std::string> parts;
  std::optional<std::vector<NetworkInfo>> networks;  // the same for all
  const int status = for_each_sandbox(
      session, *words, [&](Engine& engine, const SandboxInfo& sandbox) -> Result<std::string> {
        JsonWriter json;
        json.begin_object().key("summary");
        write_summary(json, sandbox);
        json.key("record").raw(encode_record(sandbox.record));
        if (!networks) {
          DRUPE_ASSIGN(networks, engine.private_networks());
        }
        write_networks(json, sandbox.record.id, *networks);
        if (sandbox.alive) {
          if (auto client = engine.connect(sandbox.record.id, false)) {
            auto reply = (*client)->call(static_cast<std::uint16_t>(ShimRequest::kInfo), "",
                                         Clock::now() + std::chrono::seconds(5));
            if (reply) {
              DRUPE_ASSIGN(const ShimInfo info, ShimInfo::decode(as_bytes(*reply)));
              json.key("live")
                  .begin_object()
                  .field("hypervisor_pid", info.hypervisor_pid)
                  .field("network_pid", info.network_pid)
                  .field("clients", info.clients)
                  .field("streams", info.streams)
                  .field("console_tail", std::string_view(info.console_tail))
                  .end_object();
            }
          }
        }
        json.end_object();
        parts.push_back(json.str());
        return std::string();
      });
  std::string out = "[";
  for (const auto& part : parts) out += (out.size() > 1 ? ",\n" : "") + part;
  const int printed = session.print(out + "]\n");
  return status != 0 ? status : printed;
}

}  // namespace drupe::cli
