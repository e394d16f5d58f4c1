#include "api/routes/documents.h"

#include <algorithm>
#include <array>
#include <map>

#include "api/json/writer.h"

namespace drupe::api {
namespace {

/// Fields of a query and of a body, "name:type" each, with '!' behind the name of one that is needed. Types:
/// s text, i integer, b boolean, o object; [x] a list of them, {s} an object of texts. A body of "*" is
/// bytes.
struct Known {
  std::string_view route, query, body;
};
constexpr std::string_view kPage = "limit:i offset:i";
constexpr std::array kKnown{
    Known{"GET /v1/shapes", kPage, ""},
    Known{"GET /v1/hosts", kPage, ""},
    Known{"GET /v1/networks", kPage, ""},
    Known{"GET /v1/sandboxes", "limit:i offset:i status:s", ""},
    Known{"POST /v1/sandboxes", "",
          "shape!:s rootfs:s name:s disk_mib:i egress:[s] envs:{s} ssh_pubkeys:[s] ingress_enabled:b "
          "auto_pause_after_seconds:i region:s networks:[o] disks:[o] bandwidth_quota_bytes:i"},
    Known{"PATCH /v1/sandboxes/:id", "", "ingress_enabled:b auto_pause_after_seconds:i disable_auto_pause:b"},
    Known{"POST /v1/sandboxes/:id/fork", "",
          "start_paused:b ssh_pubkeys:[s] egress:[s] ingress_enabled:b envs:{s}"},
    Known{"POST /v1/sandboxes/:id/forks", "",
          "count:i start_paused:b ssh_pubkeys:[s] egress:[s] ingress_enabled:b envs:{s}"},
    Known{"PUT /v1/sandboxes/:id/egress", "", "egress:[s]"},
    Known{"POST /v1/sandboxes/:id/ssh-pubkeys", "", "keys!:[s]"},
    Known{"POST /v1/sandboxes/:id/resize", "", "disk_mib!:i"},
    Known{"POST /v1/sandboxes/:id/bandwidth/recharge", "", "add_bytes:i gib:i"},
    Known{"POST /v1/sandboxes/:id/exec", "stream:b",
          "cmd!:s args:[s] stdin:s env:{s} stream:b cwd:s timeout_ms:i details:b"},
    Known{"PUT /v1/sandboxes/:id/files", "path!:s", "*"},
    Known{"GET /v1/sandboxes/:id/files", "path!:s", ""},
    Known{"GET /v1/sandboxes/:id/files/stat", "path!:s", ""},
    Known{"GET /v1/sandboxes/:id/files/list", "path!:s recursive:b glob:s", ""},
    Known{"GET /v1/sandboxes/:id/files/grep", "path!:s text!:s glob:s ignore_case:b", ""},
    Known{"GET /v1/sandboxes/:id/files/tar", "path!:s", ""},
    Known{"PUT /v1/sandboxes/:id/files/tar", "path!:s", "*"},
    Known{"POST /v1/sandboxes/:id/processes", "", "cmd:s args:[s] cwd:s env:{s} pty:o"},
    Known{"DELETE /v1/sandboxes/:id/processes/:pid", "grace_ms:i", ""},
    Known{"GET /v1/sandboxes/:id/processes/:pid/connect", "after:i", ""},
    Known{"POST /v1/sandboxes/:id/processes/:pid/input", "", "data_base64!:s"},
    Known{"POST /v1/sandboxes/:id/processes/:pid/resize", "", "rows!:i cols!:i"},
    Known{"POST /v1/sandboxes/:id/processes/:pid/signal", "", "signal!:s"},
    Known{"GET /v1/sandboxes/:id/processes/:pid/wait", "scope:s timeout_ms:i", ""},
    Known{"POST /v1/sandboxes/:id/networks", "", "id!:s"},
    Known{"POST /v1/networks", "", "name!:s"},
};

struct Field {
  std::string_view name, type;
  bool needed = false;
};

std::vector<Field> fields_of(std::string_view text) {
  std::vector<Field> fields;
  while (!text.empty()) {
    const auto space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
    const auto colon = word.find(':');
    const bool needed = word[colon - 1] == '!';
    fields.push_back({word.substr(0, colon - (needed ? 1 : 0)), word.substr(colon + 1), needed});
  }
  return fields;
}

std::string schema_of(std::string_view type) {
  if (type == "s") return R"({"type":"string"})";
  if (type == "i") return R"({"type":"integer"})";
  if (type == "b") return R"({"type":"boolean"})";
  if (type == "o") return R"({"type":"object"})";
  if (type == "{s}") return R"({"type":"object","additionalProperties":{"type":"string"}})";
  return R"({"type":"array","items":)" + schema_of(type.substr(1, type.size() - 2)) + "}";
}

void write_body(drupe::JsonWriter& json, std::string_view body) {
  if (body.empty()) return;
  json.key("requestBody").begin_object();
  if (body == "*") {
    json.field("required", true).key("content").begin_object();
    json.key("application/octet-stream").raw(R"({"schema":{"type":"string","format":"binary"}})");
    json.end_object().end_object();
    return;
  }
  const auto fields = fields_of(body);
  const bool needed = std::ranges::any_of(fields, &Field::needed);
  json.field("required", needed).key("content").begin_object().key("application/json").begin_object();
  json.key("schema").begin_object().field("type", "object").key("properties").begin_object();
  for (const Field& field : fields) json.key(field.name).raw(schema_of(field.type));
  json.end_object();
  if (needed) {
    json.key("required").begin_array();
    for (const Field& field : fields)
      if (field.needed) json.text(field.name);
    json.end_array();
  }
  json.end_object().end_object().end_object().end_object();
}

void write_parameter(drupe::JsonWriter& json, const Field& field, std::string_view where,
                     std::string_view schema) {
  json.begin_object().field("name", field.name).field("in", where).field("required", field.needed);
  json.key("schema").raw(schema).end_object();
}

/// "/v1/sandboxes/:id" as "/v1/sandboxes/{id}", and the names in it.
std::string path_of(std::string_view pattern, std::vector<std::string>& names) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != ':') {
      path += pattern[i];
      continue;
    }
    const auto end = std::min(pattern.find('/', i), pattern.size());
    names.emplace_back(pattern.substr(i + 1, end - i - 1));
    path += "{" + names.back() + "}";
    i = end - 1;
  }
  return path;
}

void write_operation(drupe::JsonWriter& json, const Route& route, const std::vector<std::string>& names) {
  const std::string name = std::string(route.method) + " " + std::string(route.pattern);
  const auto* const known = std::ranges::find(kKnown, name, &Known::route);
  const Known what = known == kKnown.end() ? Known{name, "", ""} : *known;
  json.begin_object().field("operationId", name);
  if (route.open) json.key("security").begin_array().end_array();
  json.key("parameters").begin_array();
  for (const std::string& one : names)
    write_parameter(json, {one, "s", true}, "path",
                    one == "id" && route.pattern.starts_with("/v1/sandboxes/:id")
                        ? R"({"type":"string","pattern":"^sb-[0-9a-hjkmnp-tv-z]{26}$"})"
                        : R"({"type":"string","minLength":1})");
  for (const Field& field : fields_of(what.query))
    write_parameter(json, field, "query", schema_of(field.type));
  json.end_array();
  write_body(json, what.body);
  json.key("responses")
      .raw(R"({"200":{"description":"success"},"default":{"$ref":"#/components/responses/refusal"}})");
  json.end_object();
}

constexpr std::string_view kComponents =
    R"({"securitySchemes":{"key":{"type":"apiKey","in":"header","name":"X-Api-Key"}},)"
    R"("responses":{"refusal":{"description":"fail or error","content":{"application/json":{"schema":)"
    R"({"oneOf":[{"type":"object","required":["status","data"],"properties":{"status":{"const":"fail"},)"
    R"("data":{"type":"object","additionalProperties":{"type":"string"}}}},)"
    R"({"type":"object","required":["status","message","code"],"properties":{"status":{"const":"error"},)"
    R"("message":{"type":"string"},"code":{"type":"integer"}}}]}}}}}})";

Answer<Data> openapi(Call& call) {
  Response response;
  response.body = call.services.openapi;
  API_TRY(call.exchange.send(response));
  return std::nullopt;
}

}  // namespace

std::string openapi_document(const std::vector<Route>& routes) {
  std::map<std::string, std::vector<const Route*>> paths;
  std::map<std::string, std::vector<std::string>> names;
  for (const Route& route : routes) {
    std::vector<std::string> in_path;
    const std::string path = path_of(route.pattern, in_path);
    paths[path].push_back(&route);
    names[path] = std::move(in_path);
  }
  JsonWriter json;
  json.begin_object().field("openapi", "3.1.0").key("info").begin_object();
  json.field("title", "druped: the CreateOS HTTP API v1").field("version", DRUPE_VERSION).end_object();
  json.key("security").raw(R"([{"key":[]}])").key("paths").begin_object();
  for (const auto& [path, operations] : paths) {
    json.key(path).begin_object();
    for (const Route* const route : operations) {
      std::string method(route->method);
      for (char& c : method) c = static_cast<char>(c - 'A' + 'a');
      write_operation(json.key(method), *route, names[path]);
    }
    json.end_object();
  }
  return json.end_object().key("components").raw(kComponents).end_object().take();
}

std::vector<Route> document_routes() {
  return {{"GET", "/openapi.json", openapi, true}};
}

}  // namespace drupe::api
