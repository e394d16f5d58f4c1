// Private networks: E26, E27, E41 to E44.
#include "api/service/networks.h"

#include "api/json/writer.h"
#include "api/routes/call.h"
#include "api/routes/view.h"

namespace drupe::api {
namespace {

enum class Members : std::uint8_t { kCounted, kListed };

std::string network_json(const NetworkView& view, Members members) {
  JsonWriter json;
  json.begin_object().field("id", view.row.id).field("name", view.row.name);
  json.field("created_at", timestamp(view.row.created_ns)).field("member_count", view.members.size());
  if (members == Members::kListed) {
    json.key("members").begin_array();
    for (const NetworkMember& member : view.members)
      json.begin_object()
          .field("sandbox_id", member.sandbox_id)
          .field("status", to_string(member.state))
          .field("ip", member.ip)
          .field("name", member.name)
          .end_object();
    json.end_array();
  }
  return json.end_object().take();
}

std::string ok() {
  JsonWriter json;
  return json.begin_object().field("ok", true).end_object().take();
}

Answer<Data> create(Call& call) {
  auto body = call.object();
  if (!body) return std::unexpected(body.error());
  API_ASSIGN(const auto name, text_field(*body, "name"));
  if (!name || name->empty()) return refuse(400, "invalid_argument", "name is needed");
  API_ASSIGN(const NetworkView view, call.services.networks.create(call.caller.id, *name));
  return network_json(view, Members::kListed);
}

Answer<Data> list(Call& call) {
  auto page = read_page(call.exchange.head());
  if (!page) return std::unexpected(page.error());
  API_ASSIGN(const auto views, call.services.networks.list(call.caller.id));
  std::vector<std::string> items;
  for (const NetworkView& view : views) items.push_back(network_json(view, Members::kCounted));
  return paginated(items, *page);
}

Answer<Data> get(Call& call) {
  API_ASSIGN(const NetworkView view, call.services.networks.find(call.caller.id, call.part("network")));
  return network_json(view, Members::kListed);
}

Answer<Data> remove(Call& call) {
  API_TRY(call.services.networks.remove(call.caller.id, call.part("network")));
  return ok();
}

Answer<Data> attach(Call& call) {
  auto body = call.object();
  if (!body) return std::unexpected(body.error());
  API_ASSIGN(const auto network, text_field(*body, "id"));
  if (!network || network->empty()) return refuse(400, "invalid_argument", "id is needed");
  API_TRY(call.services.networks.attach(call.caller.id, call.sandbox(), *network));
  return ok();
}

Answer<Data> detach(Call& call) {
  API_TRY(call.services.networks.detach(call.caller.id, call.sandbox(), call.part("network")));
  return ok();
}

}  // namespace

std::vector<Route> network_routes() {
  return {
      {"POST", "/v1/networks", create},
      {"GET", "/v1/networks", list},
      {"GET", "/v1/networks/:network", get},
      {"DELETE", "/v1/networks/:network", remove},
      {"POST", "/v1/sandboxes/:id/networks", attach},
      {"DELETE", "/v1/sandboxes/:id/networks/:network", detach},
  };
}

}  // namespace drupe::api
