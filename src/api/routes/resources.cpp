// What a sandbox has of the machine: E13 disk, E24 and E25 bandwidth.
#include "api/json/writer.h"
#include "api/routes/call.h"

namespace drupe::api {
namespace {

Answer<Data> resize(Call& call) {
  auto body = call.object();
  if (!body) return std::unexpected(body.error());
  API_ASSIGN(const auto disk, integer_field(*body, "disk_mib", 1, std::int64_t{1} << 40));
  if (!disk) return refuse(400, "invalid_argument", "disk_mib is needed");
  API_ASSIGN(const SandboxView view,
             call.services.sandboxes.grow_disk(call.caller.id, call.sandbox(), *disk));
  JsonWriter json;
  json.begin_object().field("id", view.row.id).field("disk_mib", view.row.disk_mib);
  return json.end_object().take();
}

Answer<Data> bandwidth_of(Call& call) {
  API_ASSIGN(const Traffic traffic, call.services.sandboxes.traffic(call.caller.id, call.sandbox()));
  JsonWriter json;
  json.begin_object().field("id", call.sandbox()).field("quota_bytes", -1);
  json.field("used_bytes", traffic.used_bytes).field("ingress_bytes", traffic.in_bytes);
  json.field("remaining_bytes", -1).field("capped", false);
  return json.end_object().take();
}

Answer<Data> recharge(Call& call) {
  auto body = call.object();
  if (!body) return std::unexpected(body.error());
  // One client says it in GiB, which may be broken.
  const Value* const gib = body->find("gib");
  const bool more = gib != nullptr && ((gib->type == Value::Type::kInteger && gib->integer > 0) ||
                                       (gib->type == Value::Type::kReal && gib->real > 0));
  API_ASSIGN(const auto bytes, integer_field(*body, "add_bytes", 1, INT64_MAX));
  if (!bytes && !more) return refuse(400, "invalid_argument", "add_bytes must be more than 0");
  return bandwidth_of(call);
}

}  // namespace

std::vector<Route> resource_routes() {
  return {
      {"POST", "/v1/sandboxes/:id/resize", resize},
      {"GET", "/v1/sandboxes/:id/bandwidth", bandwidth_of},
      {"POST", "/v1/sandboxes/:id/bandwidth/recharge", recharge},
  };
}

}  // namespace drupe::api
