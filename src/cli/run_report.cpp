#include "cli/run_report.h"

#include "cli/json_writer.h"
#include "cli/values.h"

namespace drupe::cli {
namespace {

void output(JsonWriter& json, std::string_view name, std::string_view bytes) {
  if (is_utf8(bytes)) {
    json.field(name, bytes);
  } else {
    json.key(name).raw("null").field(std::string(name) + "_base64", std::string_view(base64(bytes)));
  }
}

}  // namespace

std::string run_report(const ForegroundResult& result, std::string_view isolation, const Timings& timings) {
  const ExitFacts facts = result.facts.value_or(ExitFacts{});
  const std::optional<Error>& error = result.error ? result.error : facts.error;
  JsonWriter json;
  json.begin_object();
  json.key("exit_code");
  if (facts.exit_code >= 0) {
    json.number(facts.exit_code);
  } else {
    json.null();
  }
  json.key("signal");
  if (facts.signal > 0) {
    json.number(facts.signal);
  } else {
    json.null();
  }
  json.field("timed_out", facts.timed_out)
      .field("oom_killed", facts.oom_killed)
      .field("vm_lost", result.error && result.error->code == ErrorCode::kVmLost)
      .field("truncated", result.truncated || facts.truncated);
  json.key("isolation");
  if (isolation.empty()) {
    json.null();
  } else {
    json.text(isolation);
  }
  output(json, "stdout", result.out);
  output(json, "stderr", result.err);
  json.key("error");
  if (error) {
    json.begin_object()
        .field("code", to_string(error->code))
        .field("message", std::string_view(error->message))
        .field("next_step", std::string_view(error->next_step))
        .end_object();
  } else {
    json.null();
  }
  json.key("timings").begin_object();
  for (const auto& [stage, milliseconds] : timings.stages) json.field(stage, milliseconds);
  json.end_object().end_object();
  return json.str() + "\n";
}

std::string failed_run_report(const Error& error, const Timings& timings) {
  ForegroundResult result;
  result.error = error;
  return run_report(result, "", timings);
}

}  // namespace drupe::cli
