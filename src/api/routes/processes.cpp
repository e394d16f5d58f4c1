// Managed processes: E31 to E40.
#include <array>
#include <charconv>
#include <csignal>

#include <poll.h>

#include "api/json/base64.h"
#include "api/json/writer.h"
#include "api/routes/call.h"
#include "engine/options.h"

namespace drupe::api {
namespace {

constexpr std::size_t kMostInputBody = std::size_t{8} << 20;
constexpr std::chrono::seconds kHeartbeat{5};
/// Of one frame, before it is encoded.
constexpr std::size_t kMostFrame = std::size_t{32} << 10;
constexpr std::int64_t kDefaultGraceMs = 2000, kMostGraceMs = 60'000;
constexpr std::int64_t kMostWaitMs = std::int64_t{24} * 3600 * 1000;

struct SignalName {
  std::string_view name;
  int number;
};
constexpr std::array kSignals{
    SignalName{"SIGHUP", SIGHUP},   SignalName{"SIGINT", SIGINT},     SignalName{"SIGQUIT", SIGQUIT},
    SignalName{"SIGKILL", SIGKILL}, SignalName{"SIGTERM", SIGTERM},   SignalName{"SIGUSR1", SIGUSR1},
    SignalName{"SIGUSR2", SIGUSR2}, SignalName{"SIGWINCH", SIGWINCH},
};

std::string signal_name(std::int64_t number) {
  for (const SignalName& one : kSignals)
    if (one.number == number) return std::string(one.name);
  const char* const name = ::sigabbrev_np(static_cast<int>(number));
  return name != nullptr ? "SIG" + std::string(name) : std::to_string(number);
}

std::string process_json(const ProcessView& view) {
  const ProcessRow& row = view.row;
  JsonWriter json;
  json.begin_object()
      .field("process_id", row.id)
      .field("kind", row.pty ? "pty" : "process")
      .field("pid", row.pid);
  json.field("state", view.state).field("leader_exited", row.finished_ns.has_value());
  json.field("tree_exited", row.tree_exited).field("created_at", timestamp(row.created_ns));
  if (row.finished_ns) json.field("finished_at", timestamp(*row.finished_ns));
  json.field("exit_code", row.exit_code);
  if (row.signal) json.field("signal", signal_name(*row.signal));
  if (!row.cmd.empty()) json.field("cmd", row.cmd);
  if (!row.args.empty()) json.field("args", row.args);
  if (!row.cwd.empty()) json.field("cwd", row.cwd);
  json.key("output").begin_object().field("oldest_seq", view.oldest_seq).field("newest_seq", view.newest_seq);
  return json.field("bytes", view.bytes).end_object().end_object().take();
}

Result<ProcessTarget> target_of(Call& call) {
  DRUPE_ASSIGN(auto place,
               call.services.sandboxes.place(call.caller.id, call.sandbox(), "working with its processes"));
  return ProcessTarget{std::move(place.row.id), std::move(place.directory)};
}

/// A number of the query; `otherwise` when it is missing or empty.
Answer<std::int64_t> number_of(const RequestHead& head, std::string_view name, std::int64_t otherwise,
                               std::int64_t most) {
  const auto text = head.parameter(name);
  if (!text || text->empty()) return otherwise;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0 || value > most)
    return refuse(400, "invalid_argument",
                  std::string(name) + " must be a number from 0 to " + std::to_string(most));
  return value;
}

bool client_left(const Call& call) {
  pollfd entry{call.exchange.fd(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

Answer<ProcessSpec> read_spec(const Value& body, const SandboxRow& row) {
  ProcessSpec spec;
  API_ASSIGN(const auto cmd, text_field(body, "cmd"));
  spec.cmd = cmd.value_or("");
  API_ASSIGN(auto args, texts_field(body, "args"));
  spec.args = std::move(args).value_or(std::vector<std::string>());
  API_ASSIGN(const auto cwd, text_field(body, "cwd"));
  spec.cwd = cwd.value_or("");
  std::vector<std::string> env;
  for (const auto& [name, value] : row.envs) env.push_back(name + "=" + value);
  API_ASSIGN(const auto given, map_field(body, "env"));
  std::vector<std::string> own;
  for (const auto& [name, value] : given.value_or(std::map<std::string, std::string>())) {
    if (name.find('=') != std::string::npos)
      return refuse(400, "invalid_argument", "env has a name with '='");
    own.push_back(name + "=" + value);
  }
  const Value* const pty = body.find("pty");
  if (pty != nullptr) {
    if (!pty->is_object()) return refuse(400, "invalid_argument", "pty must be an object");
    spec.pty = true;
    API_ASSIGN(const auto rows, integer_field(*pty, "rows", 0, 10'000));
    API_ASSIGN(const auto cols, integer_field(*pty, "cols", 0, 10'000));
    if (rows.value_or(0) != 0) spec.rows = static_cast<std::uint16_t>(*rows);
    if (cols.value_or(0) != 0) spec.columns = static_cast<std::uint16_t>(*cols);
    env.insert(env.begin(), "TERM=xterm-256color");
  } else if (spec.cmd.empty()) {
    return refuse(400, "invalid_argument", "cmd is needed, unless there is a pty");
  }
  spec.env = merge_env(env, own);
  return spec;
}

Answer<Data> create(Call& call) {
  auto body = call.object();
  if (!body) return std::unexpected(body.error());
  API_ASSIGN(auto place, call.services.sandboxes.place(call.caller.id, call.sandbox(), "starting processes"));
  auto spec = read_spec(*body, place.row);
  if (!spec) return std::unexpected(spec.error());
  const ProcessTarget target{place.row.id, std::move(place.directory)};
  API_ASSIGN(const ProcessView view, call.services.processes.create(target, *spec));
  call.services.metrics.count_exec("process");
  return process_json(view);
}

Answer<Data> list(Call& call) {
  API_ASSIGN(const ProcessTarget target, target_of(call));
  API_ASSIGN(const auto views, call.services.processes.list(target));
  JsonWriter json;
  json.begin_object().key("processes").begin_array();
  for (const ProcessView& view : views) json.raw(process_json(view));
  return json.end_array().end_object().take();
}

Answer<Data> get(Call& call) {
  API_ASSIGN(const ProcessTarget target, target_of(call));
  API_ASSIGN(const ProcessView view, call.services.processes.get(target, call.part("pid")));
  return process_json(view);
}

Answer<Data> end(Call& call) {
  const auto grace = number_of(call.exchange.head(), "grace_ms", kDefaultGraceMs, kMostGraceMs);
  if (!grace) return std::unexpected(grace.error());
  API_ASSIGN(const ProcessTarget target, target_of(call));
  API_ASSIGN(const ProcessView view,
             call.services.processes.end(target, call.part("pid"), std::chrono::milliseconds(*grace)));
  return process_json(view);
}

std::string_view stream_name(const ProcessRow& row, Channel channel) {
  if (row.pty) return "pty";
  return channel == Channel::kStderr ? "stderr" : "stdout";
}

/// The line of each part of the frame's bytes; all have its number but the reader asks for what is behind it.
Status write_frame(Exchange& exchange, const ProcessRow& row, const OutputFrame& frame) {
  std::string_view rest = frame.bytes;
  while (!rest.empty()) {
    JsonWriter json;
    json.begin_object().field("type", "data").field("seq", frame.seq);
    json.field("stream", stream_name(row, frame.channel));
    json.field("data_base64", base64_encode(rest.substr(0, kMostFrame)));
    rest.remove_prefix(std::min(rest.size(), kMostFrame));
    DRUPE_TRY(exchange.write(json.end_object().take() + "\n"));
  }
  return {};
}

std::string exit_line(const ProcessView& view) {
  JsonWriter json;
  if (view.row.failed)
    return json.begin_object()
        .field("type", "error")
        .field("error", "the process is lost")
        .end_object()
        .take();
  json.begin_object().field("type", "exit").field("exit_code", view.row.exit_code);
  if (view.row.signal) json.field("signal", signal_name(*view.row.signal));
  return json.end_object().take();
}

Answer<Data> connect(Call& call) {
  const auto from = number_of(call.exchange.head(), "after", 0, INT64_MAX);
  if (!from) return std::unexpected(from.error());
  API_ASSIGN(const ProcessTarget target, target_of(call));
  API_ASSIGN(const ProcessView first, call.services.processes.get(target, call.part("pid")));
  API_TRY(call.exchange.begin("application/x-ndjson", std::nullopt));
  auto after = static_cast<std::uint64_t>(*from);
  while (!client_left(call)) {
    API_ASSIGN(const auto output,
               call.services.processes.read(target, first.row.id, after, Clock::now() + kHeartbeat));
    if (output.expired) {
      JsonWriter json;
      json.begin_object().field("type", "error").field("error", "output offset expired");
      json.field("oldest_available_seq", *output.expired).end_object();
      API_TRY(call.exchange.write(json.take() + "\n"));
      API_TRY(call.exchange.end());
      return std::nullopt;
    }
    for (const OutputFrame& frame : output.frames) {
      API_TRY(write_frame(call.exchange, first.row, frame));
      after = frame.seq;
    }
    if (output.ended) {
      API_TRY(call.exchange.write(exit_line(*output.ended) + "\n"));
      API_TRY(call.exchange.end());
      return std::nullopt;
    }
    if (output.frames.empty()) API_TRY(call.exchange.write("{\"type\":\"heartbeat\"}\n"));
  }
  call.exchange.abort();
  return std::nullopt;
}

Answer<Data> input(Call& call) {
  auto body = call.object(kMostInputBody);
  if (!body) return std::unexpected(body.error());
  API_ASSIGN(const auto text, text_field(*body, "data_base64"));
  auto bytes = text ? base64_decode(*text) : std::nullopt;
  if (!bytes) return refuse(400, "invalid_argument", "data_base64 must be base64 with padding");
  API_ASSIGN(const ProcessTarget target, target_of(call));
  API_ASSIGN(const std::uint64_t seq,
             call.services.processes.input(target, call.part("pid"), *std::move(bytes)));
  return JsonWriter().begin_object().field("input_seq", seq).end_object().take();
}

constexpr const char* kOk = R"({"ok":true})";

Answer<Data> close_stdin(Call& call) {
  API_ASSIGN(const ProcessTarget target, target_of(call));
  API_TRY(call.services.processes.close_stdin(target, call.part("pid")));
  return kOk;
}

Answer<Data> resize(Call& call) {
  auto body = call.object();
  if (!body) return std::unexpected(body.error());
  API_ASSIGN(const auto rows, integer_field(*body, "rows", 1, 10'000));
  API_ASSIGN(const auto cols, integer_field(*body, "cols", 1, 10'000));
  if (!rows || !cols) return refuse(400, "invalid_argument", "rows and cols are needed");
  API_ASSIGN(const ProcessTarget target, target_of(call));
  API_TRY(call.services.processes.resize(target, call.part("pid"), static_cast<std::uint16_t>(*rows),
                                         static_cast<std::uint16_t>(*cols)));
  return kOk;
}

Answer<Data> signal(Call& call) {
  auto body = call.object();
  if (!body) return std::unexpected(body.error());
  API_ASSIGN(const auto name, text_field(*body, "signal"));
  for (const SignalName& one : kSignals) {
    if (name != one.name) continue;
    API_ASSIGN(const ProcessTarget target, target_of(call));
    API_TRY(call.services.processes.signal(target, call.part("pid"), one.number));
    return kOk;
  }
  return refuse(400, "invalid_argument", "signal is none that can be sent");
}

Answer<Data> wait(Call& call) {
  const RequestHead& head = call.exchange.head();
  const std::string_view scope = head.parameter("scope").value_or("");
  if (!scope.empty() && scope != "leader" && scope != "tree")
    return refuse(400, "invalid_argument", "scope must be leader or tree");
  const auto timeout = number_of(head, "timeout_ms", kMostWaitMs, kMostWaitMs);
  if (!timeout) return std::unexpected(timeout.error());
  API_ASSIGN(const ProcessTarget target, target_of(call));
  const Deadline deadline = Clock::now() + std::chrono::milliseconds(*timeout);
  while (!client_left(call)) {
    API_ASSIGN(const auto ended,
               call.services.processes.wait(target, call.part("pid"), scope == "tree",
                                            std::min<Deadline>(deadline, Clock::now() + kHeartbeat)));
    if (ended) return process_json(*ended);
    if (Clock::now() >= deadline) return refuse(408, "timeout", "the process has not ended in that time");
  }
  call.exchange.abort();
  return std::nullopt;
}

}  // namespace

std::vector<Route> process_routes() {
  return {
      {"POST", "/v1/sandboxes/:id/processes", create},
      {"GET", "/v1/sandboxes/:id/processes", list},
      {"GET", "/v1/sandboxes/:id/processes/:pid", get},
      {"DELETE", "/v1/sandboxes/:id/processes/:pid", end},
      {"GET", "/v1/sandboxes/:id/processes/:pid/connect", connect},
      {"POST", "/v1/sandboxes/:id/processes/:pid/input", input},
      {"POST", "/v1/sandboxes/:id/processes/:pid/stdin/close", close_stdin},
      {"POST", "/v1/sandboxes/:id/processes/:pid/resize", resize},
      {"POST", "/v1/sandboxes/:id/processes/:pid/signal", signal},
      {"GET", "/v1/sandboxes/:id/processes/:pid/wait", wait},
  };
}

}  // namespace drupe::api
