// Commands: E18 buffered, E19 streamed.
#include "api/json/writer.h"
#include "api/routes/call.h"
#include "api/service/guest_command.h"
#include "base/ids.h"
#include "engine/options.h"

namespace drupe::api {
namespace {

/// Of a request, whose `stdin` is text within JSON.
constexpr std::size_t kMostBody = std::size_t{32} << 20;
/// Of each output in a buffered answer.
constexpr std::size_t kMostOutput = std::size_t{16} << 20;
/// One line of a stream, its newline included; some readers give up above 4 MiB.
constexpr std::size_t kMostLine = std::size_t{60} << 10;
constexpr std::int64_t kMostTimeoutMs = std::int64_t{30} * 24 * 3600 * 1000;
/// What the agent says of a program that it cannot start; the shell's convention.
constexpr int kCannotStart = 127;

struct Command {
  OpenRequest open;
  std::string input;
  bool stream = false;
  bool details = false;  ///< Ours: the facts of its end, apart.
};

Answer<Command> read_command(const Value& body, const RequestHead& head) {
  Command command;
  ExecOptions& exec = command.open.exec;
  API_ASSIGN(const auto program, text_field(body, "cmd"));
  if (!program || program->empty()) return refuse(400, "invalid_argument", "cmd is needed");
  exec.argv = {*program};
  API_ASSIGN(const auto arguments, texts_field(body, "args"));
  if (arguments) exec.argv.insert(exec.argv.end(), arguments->begin(), arguments->end());
  API_ASSIGN(const auto env, map_field(body, "env"));
  for (const auto& [name, value] : env.value_or(std::map<std::string, std::string>())) {
    // With '=' it would be another variable than the one that is named.
    if (name.find('=') != std::string::npos)
      return refuse(400, "invalid_argument", "env has a name with '='");
    exec.env.push_back(name + "=" + value);
  }
  API_ASSIGN(auto input, text_field(body, "stdin"));
  exec.stdin_open = input.has_value();
  command.input = std::move(input).value_or("");
  API_ASSIGN(const auto stream, bool_field(body, "stream"));
  command.stream = stream.value_or(false) || head.parameter("stream") == "true";
  API_ASSIGN(const auto cwd, text_field(body, "cwd"));
  exec.cwd = cwd.value_or("");
  API_ASSIGN(const auto timeout, integer_field(body, "timeout_ms", 1, kMostTimeoutMs));
  exec.timeout_ms = static_cast<std::uint64_t>(timeout.value_or(0));
  API_ASSIGN(const auto details, bool_field(body, "details"));
  command.details = details.value_or(false);
  exec.exec_id = random_id();
  return command;
}

/// The sandbox's variables below the command's own.
void add_environment(ExecOptions& exec, const SandboxRow& row) {
  std::vector<std::string> env;
  for (const auto& [name, value] : row.envs) env.push_back(name + "=" + value);
  exec.env = merge_env(env, exec.env);
}

int exit_code_of(const ExitFacts& facts) {
  if (facts.error) return facts.exit_code > 0 ? facts.exit_code : kCannotStart;
  return facts.signal != 0 ? 128 + facts.signal : facts.exit_code;
}

void write_details(JsonWriter& json, const ExitFacts& facts, bool truncated) {
  json.field("timed_out", facts.timed_out).field("oom_killed", facts.oom_killed);
  json.field("signal", facts.signal).field("truncated", truncated || facts.truncated);
}

Answer<Data> run_buffered(Call& call, Sandboxes::Access& access, const Command& command) {
  std::string out;
  std::string err;
  bool truncated = false;
  StreamSink sink;
  sink.on_data = [&](Channel channel, std::string_view bytes) -> Status {
    std::string& into = channel == Channel::kStderr ? err : out;
    const std::size_t room = kMostOutput - into.size();
    into.append(bytes.substr(0, room));
    truncated = truncated || bytes.size() > room;
    return {};
  };
  const auto begun = Clock::now();
  auto facts = serve_stream(access.engine->loop(), *access.client, command.open, command.input,
                            call.exchange.fd(), sink);
  if (!facts && facts.error().code == ErrorCode::kCancelled) {
    call.exchange.abort();
    return std::nullopt;
  }
  JsonWriter json;
  json.begin_object().key("result").begin_object().field("stdout", out).field("stderr", err);
  // Once it may have begun, its end is told within a good answer: nobody repeats it then.
  json.field("exit_code", facts ? exit_code_of(*facts) : -1);
  if (!facts)
    json.field("error", facts.error().message);
  else if (facts->error)
    json.field("error", facts->error->message);
  else if (truncated)
    json.field("error", "the output was cut after 16 MiB; a stream has all of it");
  if (command.details && facts)
    write_details(json, *facts, truncated);
  else if (truncated)
    json.field("truncated", true);
  json.end_object();
  json.field("exec_ms", std::chrono::duration<double, std::milli>(Clock::now() - begun).count());
  return json.end_object().take();
}

/// Writes the frames of a stream: text in whole characters and short lines.
class Frames {
 public:
  explicit Frames(Exchange& exchange) : exchange_(exchange) {}

  Status data(Channel channel, std::string_view bytes) {
    std::string& kept = kept_[channel == Channel::kStderr ? 1 : 0];
    kept.append(bytes);
    const std::size_t whole = whole_characters(kept);
    DRUPE_TRY(text(channel, std::string_view(kept).substr(0, whole)));
    kept.erase(0, whole);
    return {};
  }
  Status heartbeat() { return exchange_.write("{\"hb\":true}\n"); }
  Status end(const ExitFacts* facts, const std::string& error, bool details) {
    for (const Channel channel : {Channel::kStdout, Channel::kStderr})
      DRUPE_TRY(text(channel, kept_[channel == Channel::kStderr ? 1 : 0]));
    if (!error.empty())
      DRUPE_TRY(line(JsonWriter().begin_object().field("error", error).end_object().take()));
    JsonWriter json;
    json.begin_object().field("exit_code", facts != nullptr ? exit_code_of(*facts) : -1);
    if (facts != nullptr && details) write_details(json, *facts, false);
    DRUPE_TRY(line(json.end_object().take()));
    return exchange_.end();
  }

 private:
  Status text(Channel channel, std::string_view bytes) {
    while (!bytes.empty()) {
      std::string frame = channel == Channel::kStderr ? R"({"stderr":")" : R"({"stdout":")";
      bytes.remove_prefix(append_json_text(frame, bytes, kMostLine - 3));
      frame += "\"}\n";
      DRUPE_TRY(exchange_.write(frame));
    }
    return {};
  }
  Status line(std::string json) { return exchange_.write(std::move(json) + "\n"); }

  Exchange& exchange_;
  std::string kept_[2];  ///< A character's first bytes, of stdout and stderr.
};

Answer<Data> run_streamed(Call& call, Sandboxes::Access& access, const Command& command) {
  API_TRY(call.exchange.begin("application/x-ndjson", std::nullopt));
  Frames frames(call.exchange);
  StreamSink sink;
  sink.on_data = [&](Channel channel, std::string_view bytes) { return frames.data(channel, bytes); };
  sink.on_quiet = [&] { return frames.heartbeat(); };
  auto facts = serve_stream(access.engine->loop(), *access.client, command.open, command.input,
                            call.exchange.fd(), sink);
  if (!facts && facts.error().code == ErrorCode::kCancelled) {
    call.exchange.abort();
    return std::nullopt;
  }
  const std::string error = !facts ? facts.error().message : facts->error ? facts->error->message : "";
  API_TRY(frames.end(facts ? &*facts : nullptr, error, command.details));
  return std::nullopt;
}

Answer<Data> exec(Call& call) {
  auto body = call.object(kMostBody);
  if (!body) return std::unexpected(body.error());
  auto command = read_command(*body, call.exchange.head());
  if (!command) return std::unexpected(command.error());
  API_ASSIGN(auto access, call.services.sandboxes.access(call.caller.id, call.sandbox(), "running commands"));
  add_environment(command->open.exec, access.row);
  if (auto good = check_exec(command->open.exec); !good) {
    // Every bound of a command is the caller's to keep.
    ApiError error = to_api(good.error());
    error.status = 400;
    error.retry_after_s = 0;
    return std::unexpected(std::move(error));
  }
  call.services.metrics.count_exec(command->stream ? "streamed" : "buffered");
  return command->stream ? run_streamed(call, access, *command) : run_buffered(call, access, *command);
}

}  // namespace

std::vector<Route> exec_routes() {
  return {{"POST", "/v1/sandboxes/:id/exec", exec}};
}

}  // namespace drupe::api
