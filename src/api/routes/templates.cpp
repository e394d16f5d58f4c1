// Templates: E50 to E55.
#include "api/service/templates.h"

#include "api/json/writer.h"
#include "api/routes/call.h"

namespace drupe::api {
namespace {

/// A Dockerfile of 64 KiB whose every byte is escaped, and its name.
constexpr std::size_t kMostBody = std::size_t{512} << 10;
constexpr std::chrono::seconds kQuiet{5};

std::string template_json(const TemplateRow& row, bool with_dockerfile = false) {
  JsonWriter json;
  json.begin_object().field("id", row.id).field("name", row.name).field("base", row.base);
  json.field("status", to_string(row.status)).field("ext4_size_bytes", row.ext4_size);
  json.field("created_at", timestamp(row.created_ns));
  if (row.built_ns) json.field("built_at", timestamp(*row.built_ns));
  if (!row.error.empty()) json.field("error", row.error);
  if (with_dockerfile) json.field("dockerfile", row.dockerfile);
  return json.end_object().take();
}

Answer<Data> create(Call& call) {
  auto body = call.object(kMostBody);
  if (!body) return std::unexpected(body.error());
  NewTemplate request;
  API_ASSIGN(const auto name, text_field(*body, "name"));
  API_ASSIGN(const auto dockerfile, text_field(*body, "dockerfile"));
  API_ASSIGN(const auto base, text_field(*body, "base"));
  if (!name || name->empty()) return refuse(400, "invalid_argument", "name is needed");
  if (!dockerfile || dockerfile->empty()) return refuse(400, "invalid_argument", "dockerfile is needed");
  request.name = *name;
  request.dockerfile = *dockerfile;
  request.base = base.value_or("");
  API_ASSIGN(const TemplateRow row, call.services.templates.create(call.caller.id, request));
  return template_json(row);
}

Answer<Data> list(Call& call) {
  auto page = read_page(call.exchange.head());
  if (!page) return std::unexpected(page.error());
  API_ASSIGN(const auto rows, call.services.templates.list(call.caller.id));
  std::vector<std::string> items;
  for (const TemplateRow& row : rows) items.push_back(template_json(row));
  return paginated(items, *page);
}

Answer<Data> get(Call& call) {
  API_ASSIGN(const TemplateRow row, call.services.templates.find(call.caller.id, call.part("template")));
  return template_json(row, call.exchange.head().parameter("include") == "dockerfile");
}

Answer<Data> remove(Call& call) {
  API_TRY(call.services.templates.remove(call.caller.id, call.part("template")));
  JsonWriter json;
  return json.begin_object().field("ok", true).end_object().take();
}

/// The text of {"ts":...,"line":"..."}.
std::string line_of(const std::string& json) {
  const auto parsed = parse_json(json);
  const Value* const line = parsed && parsed->is_object() ? parsed->find("line") : nullptr;
  return line == nullptr ? std::string() : line->text;
}

Answer<Data> send_text(Call& call, const TemplateRow& row) {
  API_TRY(call.exchange.begin("text/plain; charset=utf-8", std::nullopt));
  std::uint64_t from = 0;
  while (true) {
    API_ASSIGN(const BuildLogPart part, call.services.templates.log(row, from));
    if (part.lines.empty()) break;
    std::string text;
    for (const std::string& line : part.lines) text += line_of(line) + "\n";
    API_TRY(call.exchange.write(text));
    from = part.end;
  }
  API_TRY(call.exchange.end());
  return std::nullopt;
}

Answer<Data> follow(Call& call, const TemplateRow& row) {
  API_TRY(call.exchange.begin("application/x-ndjson", std::nullopt));
  std::uint64_t from = 0;
  std::uint64_t seen = 0;
  while (true) {
    // Asked first: what was said before the end is read after it.
    API_ASSIGN(const std::string end, call.services.templates.ended_as(row));
    API_ASSIGN(const BuildLogPart part, call.services.templates.log(row, from));
    for (const std::string& line : part.lines) API_TRY(call.exchange.write(line + "\n"));
    from = part.end;
    if (!part.lines.empty()) continue;
    if (!end.empty()) {
      JsonWriter json;
      json.begin_object().field("final", true).field("status", end).end_object();
      API_TRY(call.exchange.write(json.take() + "\n"));
      API_TRY(call.exchange.end());
      return std::nullopt;
    }
    const auto begun = Clock::now();
    seen = call.services.templates.wait_for_news(row.id, seen, begun + kQuiet);
    if (Clock::now() >= begun + kQuiet) API_TRY(call.exchange.write("\n"));
  }
}

Answer<Data> logs(Call& call) {
  API_ASSIGN(const TemplateRow row, call.services.templates.find(call.caller.id, call.part("template")));
  // A template is built once; another try is another template.
  const auto attempt = call.exchange.head().parameter("attempt");
  if (attempt && *attempt != "1" && *attempt != "0" && !attempt->empty())
    return refuse(404, "not_found", "attempt not found: there is only attempt 1");
  return call.exchange.head().parameter("follow") == "true" ? follow(call, row) : send_text(call, row);
}

}  // namespace

std::vector<Route> template_routes() {
  return {
      {"POST", "/v1/templates", create},
      {"GET", "/v1/templates", list},
      {"GET", "/v1/templates/:template", get},
      {"DELETE", "/v1/templates/:template", remove},
      {"GET", "/v1/templates/:template/logs", logs},
  };
}

}  // namespace drupe::api
