#include "shim/record.h"

#include <algorithm>
#include <array>
#include <limits>

#include <fcntl.h>

#include "base/files.h"
#include "shim/record_json.h"

namespace drupe {
namespace {

using record_json::Fields;
using record_json::from_bytes;
using record_json::from_list;
using record_json::Json;

constexpr auto kU16 = std::numeric_limits<std::uint16_t>::max();
constexpr auto kU32 = std::numeric_limits<std::uint32_t>::max();
constexpr auto kU64 = std::numeric_limits<std::uint64_t>::max();
constexpr auto kI32Min = std::numeric_limits<std::int32_t>::min();
constexpr auto kI32Max = std::numeric_limits<std::int32_t>::max();
constexpr auto kI64Min = std::numeric_limits<std::int64_t>::min();
constexpr auto kI64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kMaxDiskChain = 256;
constexpr std::size_t kMaxFileName = 64;

constexpr std::array<std::string_view, 4> kStateWords{"created", "running", "paused", "exited"};
constexpr std::array<std::string_view, 3> kNetworkWords{"none", "open", "policy"};
constexpr std::array<std::string_view, 9> kCauseWords{"none",     "finished",   "stopped",
                                                      "vm_lost",  "host_oom",   "guest_ended",
                                                      "lifetime", "owner_gone", "start_failed"};

template <std::size_t N>
std::optional<std::uint8_t> index_of(const std::array<std::string_view, N>& words, std::string_view word) {
  const auto found = std::find(words.begin(), words.end(), word);
  if (found == words.end()) return std::nullopt;
  return static_cast<std::uint8_t>(found - words.begin());
}

Json json_of(const Error& error) {
  return {{"code", to_string(error.code)},
          {"message", from_bytes(error.message)},
          {"next_step", from_bytes(error.next_step)},
          {"errno", error.sys_errno}};
}

Json json_of(const ExitFacts& facts) {
  Json json{{"exit_code", facts.exit_code},   {"signal", facts.signal},       {"timed_out", facts.timed_out},
            {"oom_killed", facts.oom_killed}, {"truncated", facts.truncated}, {"wall_ns", facts.wall_ns},
            {"cpu_ns", facts.cpu_ns}};
  json["error"] = facts.error ? json_of(*facts.error) : Json(nullptr);
  return json;
}

Json json_of(const ExecOptions& exec) {
  Json limits = Json::array();
  for (const auto& limit : exec.limits)
    limits.push_back({{"resource", limit.resource}, {"soft", limit.soft}, {"hard", limit.hard}});
  return {{"exec_id", from_bytes(exec.exec_id)},
          {"argv", from_list(exec.argv)},
          {"env", from_list(exec.env)},
          {"cwd", from_bytes(exec.cwd)},
          {"user", from_bytes(exec.user)},
          {"tty", exec.tty},
          {"rows", exec.rows},
          {"columns", exec.columns},
          {"stdin_open", exec.stdin_open},
          {"keep_on_reset", exec.keep_on_reset},
          {"timeout_ms", exec.timeout_ms},
          {"limits", std::move(limits)}};
}

Json json_of(const SavedState& saved) {
  return {{"delta_file", saved.delta_file},
          {"extents_file", saved.extents_file},
          {"device_state_file", saved.device_state_file},
          {"epoch", saved.epoch},
          {"durable", saved.durable},
          {"flows_file", saved.flows_file},
          {"link_up", saved.link_up}};
}

// The first mistake among the members of `inner` becomes one of `outer`.
void merge(Fields& outer, const Fields& inner, const char* name) {
  if (!inner.error().empty()) outer.mistake(name, ("holds a mistake: " + inner.error()).c_str());
}

// Names of files in the sandbox's own directory: nothing that could leave it.
std::string file_name(Fields& fields, const char* name, const std::string& value) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
  };
  if (value.size() > kMaxFileName || !std::all_of(value.begin(), value.end(), good) || value == "." ||
      value == "..")
    fields.mistake(name, "is not a plain file name");
  return value;
}

Error read_error(const Json& json, Fields& outer) {
  Fields fields(json, "error");
  Error error;
  error.code = error_code_from(fields.bytes("code"));
  error.message = fields.bytes("message");
  error.next_step = fields.bytes("next_step");
  error.sys_errno = static_cast<int>(fields.signed_number("errno", kI32Min, kI32Max));
  merge(outer, fields, "error");
  return error;
}

ExitFacts read_facts(const Json& json, Fields& outer) {
  Fields fields(json, "main_exit");
  ExitFacts facts;
  facts.exit_code = static_cast<std::int32_t>(fields.signed_number("exit_code", kI32Min, kI32Max));
  facts.signal = static_cast<std::int32_t>(fields.signed_number("signal", kI32Min, kI32Max));
  facts.timed_out = fields.flag("timed_out");
  facts.oom_killed = fields.flag("oom_killed");
  facts.truncated = fields.flag("truncated");
  facts.wall_ns = fields.unsigned_number("wall_ns", kU64);
  facts.cpu_ns = fields.unsigned_number("cpu_ns", kU64);
  if (const Json* error = fields.object("error")) facts.error = read_error(*error, fields);
  merge(outer, fields, "main_exit");
  return facts;
}

ExecOptions read_exec(const Json& json, Fields& outer) {
  Fields fields(json, "main");
  ExecOptions exec;
  exec.exec_id = fields.bytes("exec_id");
  exec.argv = fields.list("argv");
  exec.env = fields.list("env");
  exec.cwd = fields.bytes("cwd");
  exec.user = fields.bytes("user");
  exec.tty = fields.flag("tty");
  exec.rows = static_cast<std::uint16_t>(fields.unsigned_number("rows", kU16));
  exec.columns = static_cast<std::uint16_t>(fields.unsigned_number("columns", kU16));
  exec.stdin_open = fields.flag("stdin_open");
  exec.keep_on_reset = fields.flag("keep_on_reset");
  exec.timeout_ms = fields.unsigned_number("timeout_ms", kU64);
  if (const Json* limits = fields.array("limits")) {
    for (const auto& item : *limits) {
      Fields limit(item, "limits");
      exec.limits.push_back({static_cast<std::int32_t>(limit.signed_number("resource", 0, kI32Max)),
                             limit.unsigned_number("soft", kU64), limit.unsigned_number("hard", kU64)});
      merge(fields, limit, "limits");
    }
  }
  merge(outer, fields, "main");
  return exec;
}

SavedState read_saved(const Json& json, Fields& outer) {
  Fields fields(json, "saved");
  SavedState saved;
  saved.delta_file = file_name(fields, "delta_file", fields.bytes("delta_file"));
  saved.extents_file = file_name(fields, "extents_file", fields.bytes("extents_file"));
  saved.device_state_file = file_name(fields, "device_state_file", fields.bytes("device_state_file"));
  // A record of before there were networks has neither.
  if (json.contains("flows_file"))
    saved.flows_file = file_name(fields, "flows_file", fields.bytes("flows_file"));
  if (json.contains("link_up")) saved.link_up = fields.flag("link_up");
  saved.epoch = fields.unsigned_number("epoch", kU64);
  saved.durable = fields.flag("durable");
  merge(outer, fields, "saved");
  return saved;
}

Json json_of(const std::vector<NetworkRecord::Rule>& rules) {
  Json json = Json::array();
  for (const auto& rule : rules)
    json.push_back({{"rule", from_bytes(rule.text)}, {"origin", from_bytes(rule.origin)}});
  return json;
}

Json json_of(const NetworkRecord& network) {
  Json publications = Json::array();
  for (const auto& one : network.publications)
    publications.push_back(
        {{"address", from_bytes(one.address)}, {"host_port", one.host_port}, {"guest_port", one.guest_port}});
  return {{"mode", to_string(network.mode)},         {"allow", json_of(network.allow)},
          {"deny", json_of(network.deny)},           {"allow_private", from_list(network.allow_private)},
          {"publications", std::move(publications)}, {"quota_bytes", network.quota_bytes},
          {"used_bytes", network.used_bytes}};
}

std::vector<NetworkRecord::Rule> read_rules(const char* name, Fields& outer) {
  std::vector<NetworkRecord::Rule> rules;
  const Json* list = outer.array(name);
  if (list == nullptr) return rules;
  for (const auto& item : *list) {
    if (!item.is_object()) {
      outer.mistake(name, "is not a list of rules");
      return rules;
    }
    Fields fields(item, name);
    NetworkRecord::Rule rule;
    rule.text = fields.bytes("rule");
    rule.origin = fields.bytes("origin");
    merge(outer, fields, name);
    rules.push_back(std::move(rule));
  }
  return rules;
}

NetworkRecord read_network(const Json& json, Fields& outer) {
  Fields fields(json, "network");
  NetworkRecord network;
  const auto mode = index_of(kNetworkWords, fields.bytes("mode"));
  if (!mode) fields.mistake("mode", "is not a known mode");
  network.mode = static_cast<NetworkMode>(mode.value_or(0));
  network.allow = read_rules("allow", fields);
  network.deny = read_rules("deny", fields);
  network.allow_private = fields.list("allow_private");
  if (const Json* list = fields.array("publications")) {
    for (const auto& item : *list) {
      if (!item.is_object()) {
        fields.mistake("publications", "is not a list of ports");
        break;
      }
      Fields one(item, "publications");
      net::Publication publication;
      publication.address = one.bytes("address");
      publication.host_port = static_cast<std::uint16_t>(one.unsigned_number("host_port", kU16));
      publication.guest_port = static_cast<std::uint16_t>(one.unsigned_number("guest_port", kU16));
      merge(fields, one, "publications");
      network.publications.push_back(std::move(publication));
    }
  }
  network.quota_bytes = fields.unsigned_number("quota_bytes", kU64);
  network.used_bytes = fields.unsigned_number("used_bytes", kU64);
  merge(outer, fields, "network");
  return network;
}

void put_life(Json& json, const SandboxRecord& record) {
  json["state"] = to_string(record.state);
  json["cause"] = to_string(record.cause);
  json["cause_text"] = from_bytes(record.cause_text);
  json["main_exit"] = record.main_exit ? json_of(*record.main_exit) : Json(nullptr);
  json["created_ns"] = record.created_ns;
  json["started_ns"] = record.started_ns;
  json["finished_ns"] = record.finished_ns;
  json["paused_ns"] = record.paused_ns;
}

void get_life(Fields& fields, SandboxRecord& record) {
  const auto state = index_of(kStateWords, fields.bytes("state"));
  const auto cause = index_of(kCauseWords, fields.bytes("cause"));
  if (!state) fields.mistake("state", "is not a known state");
  if (!cause) fields.mistake("cause", "is not a known cause");
  record.state = static_cast<SandboxState>(state.value_or(0));
  record.cause = static_cast<EndCause>(cause.value_or(0));
  record.cause_text = fields.bytes("cause_text");
  if (const Json* facts = fields.object("main_exit")) record.main_exit = read_facts(*facts, fields);
  record.created_ns = fields.signed_number("created_ns", kI64Min, kI64Max);
  record.started_ns = fields.signed_number("started_ns", kI64Min, kI64Max);
  record.finished_ns = fields.signed_number("finished_ns", kI64Min, kI64Max);
  record.paused_ns = fields.signed_number("paused_ns", kI64Min, kI64Max);
}

void put_work(Json& json, const SandboxRecord& record) {
  json["image_env"] = from_list(record.image_env);
  json["image_user"] = from_bytes(record.image_user);
  json["image_cwd"] = from_bytes(record.image_cwd);
  json["hostname"] = from_bytes(record.hostname);
  json["machine_id"] = from_bytes(record.machine_id);
  json["stop_signal"] = from_bytes(record.stop_signal);
  json["main"] = record.main ? json_of(*record.main) : Json(nullptr);
  json["main_started"] = record.main_started;
  json["detached"] = record.detached;
  json["auto_remove"] = record.auto_remove;
  json["idle_timeout_ms"] = record.idle_timeout_ms;
  json["max_lifetime_ms"] = record.max_lifetime_ms;
  json["parent_id"] = from_bytes(record.parent_id);
}

void get_work(Fields& fields, SandboxRecord& record) {
  record.image_env = fields.list("image_env");
  record.image_user = fields.bytes("image_user");
  record.image_cwd = fields.bytes("image_cwd");
  record.hostname = fields.bytes("hostname");
  record.machine_id = fields.bytes("machine_id");
  record.stop_signal = fields.bytes("stop_signal");
  if (const Json* main = fields.object("main")) record.main = read_exec(*main, fields);
  record.main_started = fields.flag("main_started");
  record.detached = fields.flag("detached");
  record.auto_remove = fields.flag("auto_remove");
  record.idle_timeout_ms = fields.unsigned_number("idle_timeout_ms", kU64);
  record.max_lifetime_ms = fields.unsigned_number("max_lifetime_ms", kU64);
  record.parent_id = fields.bytes("parent_id");
}

void put_files(Json& json, const SandboxRecord& record) {
  json["disk_chain"] = from_list(record.disk_chain);
  json["base_key"] = from_bytes(record.base_key);
  json["base_ram_file"] = record.base_ram_file;
  json["state_key"] = from_bytes(record.state_key);
  json["tsc_khz"] = record.tsc_khz;
  json["saved"] = record.saved ? json_of(*record.saved) : Json(nullptr);
  json["next_file"] = record.next_file;
  json["isolation"] = from_bytes(record.isolation);
  json["confinement"] = from_bytes(record.confinement);
  json["confinement_missing"] = from_list(record.confinement_missing);
  json["network"] = json_of(record.network);
  json["host_ca"] = record.host_ca;
  json["self_control"] = record.self_control;
}

void get_files(const Json& json, Fields& fields, SandboxRecord& record) {
  record.disk_chain = fields.list("disk_chain");
  if (record.disk_chain.size() > kMaxDiskChain) fields.mistake("disk_chain", "is too long");
  for (const auto& name : record.disk_chain) (void)file_name(fields, "disk_chain", name);
  record.base_key = fields.bytes("base_key");
  record.base_ram_file = file_name(fields, "base_ram_file", fields.bytes("base_ram_file"));
  record.state_key = fields.bytes("state_key");
  record.tsc_khz = fields.unsigned_number("tsc_khz", kU64);
  if (const Json* saved = fields.object("saved")) record.saved = read_saved(*saved, fields);
  record.next_file = fields.unsigned_number("next_file", kU64 / 2);
  record.isolation = fields.bytes("isolation");
  record.confinement = fields.bytes("confinement");
  record.confinement_missing = fields.list("confinement_missing");
  if (json.contains("self_control")) record.self_control = fields.flag("self_control");
  if (json.contains("host_ca")) record.host_ca = fields.flag("host_ca");  // Newer than the first records.
  // "none" stood there before there were networks.
  if (json.contains("network") && json["network"].is_string()) return;
  if (const Json* network = fields.object("network")) record.network = read_network(*network, fields);
}

void get_labels(Fields& fields, SandboxRecord& record) {
  const Json* labels = fields.array("labels");
  if (labels == nullptr) return;
  for (const auto& item : *labels) {
    if (!item.is_array() || item.size() != 2) return fields.mistake("labels", "is not a list of pairs");
    record.labels[fields.bytes_of(item[0], "labels")] = fields.bytes_of(item[1], "labels");
  }
}

Result<SandboxRecord> read_fields(const Json& json) {
  Fields fields(json, "the record");
  SandboxRecord record;
  record.version = static_cast<int>(fields.unsigned_number("version", kI32Max));
  if (fields.error().empty() && record.version != kRecordVersion)
    return fail(ErrorCode::kUnsupported,
                "The sandbox's record has version " + std::to_string(record.version) +
                    ", this program knows version " + std::to_string(kRecordVersion),
                "Use the version of Drupe that made it, or remove the sandbox.");
  record.id = fields.bytes("id");
  record.name = fields.bytes("name");
  get_labels(fields, record);
  record.image_id = fields.bytes("image_id");
  record.image_name = fields.bytes("image_name");
  record.shape.vcpus = static_cast<std::uint32_t>(fields.unsigned_number("vcpus", kU32));
  record.shape.memory_mib = static_cast<std::uint32_t>(fields.unsigned_number("memory_mib", kU32));
  record.disk_bytes = fields.unsigned_number("disk_bytes", kU64 / 2);
  record.cpus = fields.real("cpus");
  get_life(fields, record);
  get_work(fields, record);
  get_files(json, fields, record);
  if (!fields.error().empty())
    return fail(ErrorCode::kIntegrity, "The sandbox's record is damaged: " + fields.error(),
                "Remove the sandbox with `drupe rm -f`.");
  return record;
}

Result<Json> parse(std::string_view text) {
  if (text.size() > kMaxRecordSize) return fail(ErrorCode::kLimit, "The sandbox's record is too long");
  // The library recurses with the nesting; a record needs five levels.
  constexpr int kMaxDepth = 16;
  bool too_deep = false;
  Json json = Json::parse(
      text,
      [&too_deep](int depth, Json::parse_event_t, Json&) {
        too_deep = too_deep || depth > kMaxDepth;
        return !too_deep;
      },
      /*allow_exceptions=*/false);
  if (json.is_discarded() || too_deep)
    return fail(ErrorCode::kIntegrity, "The sandbox's record is not JSON (torn or foreign)",
                "Remove the sandbox with `drupe rm -f`.");
  return json;
}

}  // namespace

std::string_view to_string(SandboxState state) {
  return kStateWords.at(static_cast<std::size_t>(state));
}
std::string_view to_string(EndCause cause) {
  return kCauseWords.at(static_cast<std::size_t>(cause));
}

std::string_view to_string(NetworkMode mode) {
  return kNetworkWords.at(static_cast<std::size_t>(mode));
}

std::string encode_network(const NetworkRecord& network) {
  return json_of(network).dump();
}

Result<NetworkRecord> decode_network(std::string_view text) {
  DRUPE_ASSIGN(const Json json, parse(text));
  const Json outer = Json::object({{"network", json}});
  Fields fields(outer, "the request");
  NetworkRecord network;
  if (const Json* object = fields.object("network"))
    network = read_network(*object, fields);
  else
    fields.mistake("network", "is missing");
  if (!fields.error().empty())
    return fail(ErrorCode::kIntegrity, "A network's configuration is damaged: " + fields.error());
  return network;
}

std::string encode_record(const SandboxRecord& record) {
  Json json{{"version", record.version}, {"id", from_bytes(record.id)}, {"name", from_bytes(record.name)}};
  Json labels = Json::array();
  for (const auto& [key, value] : record.labels)
    labels.push_back(Json::array({from_bytes(key), from_bytes(value)}));
  json["labels"] = std::move(labels);
  json["image_id"] = from_bytes(record.image_id);
  json["image_name"] = from_bytes(record.image_name);
  json["vcpus"] = record.shape.vcpus;
  json["memory_mib"] = record.shape.memory_mib;
  json["disk_bytes"] = record.disk_bytes;
  json["cpus"] = record.cpus;
  put_life(json, record);
  put_work(json, record);
  put_files(json, record);
  return json.dump(1) + "\n";
}

Result<SandboxRecord> decode_record(std::string_view text) {
  DRUPE_ASSIGN(const Json json, parse(text));
  return read_fields(json);
}

Result<SandboxRecord> read_record(int sandbox_dir) {
  DRUPE_ASSIGN(const UniqueFd file, open_at(sandbox_dir, kRecordFile, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  DRUPE_ASSIGN(const std::string text, read_all(file.get(), kMaxRecordSize));
  return decode_record(text);
}

Status write_record(int sandbox_dir, const SandboxRecord& record, Sync sync) {
  return replace_file(sandbox_dir, kRecordFile, encode_record(record), sync);
}

std::string encode_extents(const std::vector<MemoryExtent>& extents) {
  ByteWriter writer;
  writer.number(static_cast<std::uint64_t>(extents.size()));
  for (const auto& extent : extents)
    writer.number(extent.ram_offset).number(extent.file_offset).number(extent.length);
  return writer.take();
}

Result<std::vector<MemoryExtent>> decode_extents(std::string_view bytes, std::uint64_t ram_bytes) {
  const auto damaged = [] {
    return fail(ErrorCode::kIntegrity, "The map of a sandbox's saved memory is damaged");
  };
  ByteReader reader(bytes);
  const auto count = reader.number<std::uint64_t>();
  if (!reader.ok() || count > kMaxExtents) return damaged();
  std::vector<MemoryExtent> extents;
  std::uint64_t end = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    MemoryExtent extent;
    extent.ram_offset = reader.number<std::uint64_t>();
    extent.file_offset = reader.number<std::uint64_t>();
    extent.length = reader.number<std::uint64_t>();
    const bool aligned = (extent.ram_offset | extent.file_offset | extent.length) % kPage == 0;
    if (!reader.ok() || !aligned || extent.length == 0 || extent.ram_offset < end ||
        extent.ram_offset > ram_bytes || extent.length > ram_bytes - extent.ram_offset ||
        extent.file_offset > kI64Max - extent.length)
      return damaged();
    end = extent.ram_offset + extent.length;
    extents.push_back(extent);
  }
  if (!reader.done()) return damaged();
  return extents;
}

}  // namespace drupe
