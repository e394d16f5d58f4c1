#include "api/service/request_log.h"

#include <atomic>
#include <cstdio>

#include "api/json/writer.h"
#include "base/log_sink.h"

namespace drupe::api {
namespace {

constexpr std::size_t kMostObject = 128;
/// How the text of a request's line begins, which is an object already.
constexpr std::string_view kObject = "{\"event\":\"request\"";

thread_local std::string t_request;
std::atomic<bool> g_json = false;

std::string json_line(std::string_view stamp, std::string_view name, std::string_view level,
                      std::string_view text) {
  JsonWriter json;
  json.begin_object().field("time", stamp).field("name", name).field("level", level);
  if (text.starts_with(kObject)) {
    std::string head = json.end_object().take();
    head.back() = ',';
    return head + std::string(text.substr(1)) + "\n";
  }
  if (!t_request.empty()) json.field("request_id", t_request);
  return json.field("text", text).end_object().take() + "\n";
}

}  // namespace

void log_as_json() {
  g_json = true;
  set_log_format(json_line);
}

RequestScope::RequestScope(std::string_view request_id) {
  t_request = request_id;
}
RequestScope::~RequestScope() {
  t_request.clear();
}

void log_request(const RequestLine& line) {
  std::string text = "request";
  JsonWriter json;
  json.begin_object().field("event", "request");
  const auto add = [&](std::string_view name, std::string_view value) {
    if (value.empty()) return;
    json.field(name, value);
    text.append(" ").append(name).append("=");
    // The bytes of a client may not look like another field.
    for (const char c : value) text += c > 0x20 && c < 0x7f && c != '=' && c != '"' ? c : '?';
  };
  add("request_id", line.request_id);
  add("client", line.client);
  add("method", line.method);
  add("route", line.route);
  json.field("status", line.status).field("ms", line.ms);
  char numbers[64];
  std::snprintf(numbers, sizeof numbers, " status=%d ms=%.1f", line.status, line.ms);
  text += numbers;
  add("user_id", line.user_id);
  add("object", line.object.substr(0, kMostObject));
  add("code", line.code);
  log(LogLevel::kInfo, g_json ? json.end_object().take() : text);
}

}  // namespace drupe::api
