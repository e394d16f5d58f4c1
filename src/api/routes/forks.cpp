// Ours: many children of one sandbox at once.
#include "api/json/writer.h"
#include "api/routes/call.h"
#include "api/routes/fork_fields.h"
#include "api/routes/view.h"

namespace drupe::api {
namespace {

constexpr std::int64_t kMostChildren = 64;

Answer<Data> forks(Call& call) {
  auto body = call.object();
  if (!body) return std::unexpected(body.error());
  ForksRequest request;
  API_ASSIGN(const auto count, integer_field(*body, "count", 1, kMostChildren));
  request.count = static_cast<std::uint32_t>(count.value_or(1));
  API_ASSIGN(request.each, read_fork(*body));
  API_ASSIGN(const auto views, call.services.sandboxes.forks(call.caller.id, call.sandbox(), request));
  JsonWriter json;
  json.begin_object().key("sandboxes").begin_array();
  for (const SandboxView& view : views)
    json.raw(sandbox_json(view, call.services.sandboxes.settings(), false));
  return json.end_array().end_object().take();
}

}  // namespace

Result<ForkRequest> read_fork(const Value& body) {
  ForkRequest request;
  DRUPE_ASSIGN(const auto paused, bool_field(body, "start_paused"));
  request.start_paused = paused.value_or(false);
  DRUPE_ASSIGN(request.egress, texts_field(body, "egress"));
  DRUPE_ASSIGN(request.ssh_pubkeys, texts_field(body, "ssh_pubkeys"));
  DRUPE_ASSIGN(request.envs, map_field(body, "envs"));
  DRUPE_ASSIGN(request.ingress, bool_field(body, "ingress_enabled"));
  return request;
}

std::vector<Route> fork_routes() {
  return {{"POST", "/v1/sandboxes/:id/forks", forks}};
}

}  // namespace drupe::api
