// What this server does not have, with a definite answer each.
#include "api/routes/call.h"

namespace drupe::api {
namespace {

Answer<Data> no_disks(Call& /*call*/) {
  return std::unexpected(ApiError{503, "disks API not configured", "disks_not_configured"});
}

/// A sandbox that is not the caller's is not found, whatever is asked of it.
Answer<Data> own(Call& call, ApiError error) {
  API_TRY(call.services.sandboxes.find(call.caller.id, call.sandbox()));
  return std::unexpected(std::move(error));
}
Answer<Data> no_sandbox_disks(Call& call) {
  return own(call, {503, "disks API not configured", "disks_not_configured"});
}
Answer<Data> no_desktop(Call& call) {
  return own(call, {501, "this sandbox's image has no desktop tools", "desktop_tools_unavailable"});
}
Answer<Data> no_shell_websocket(Call& call) {
  return own(call, {501, "shell-ws is not offered; use /shell", "not_offered"});
}
Answer<Data> not_offered(Call& /*call*/) {
  return refuse(501, "not_offered", "this server does not offer this part of the API");
}

}  // namespace

std::vector<Route> unsupported_routes() {
  std::vector<Route> routes;
  for (const std::string_view method : {"GET", "POST", "PUT", "DELETE", "PATCH"}) {
    for (const std::string_view pattern : {"/v1/disks", "/v1/disks/:disk"})
      routes.push_back({method, pattern, no_disks});
    for (const std::string_view pattern : {"/v1/sandboxes/:id/disks", "/v1/sandboxes/:id/disks/:disk"})
      routes.push_back({method, pattern, no_sandbox_disks});
    for (const std::string_view pattern :
         {"/v1/sandboxes/:id/computer/:a", "/v1/sandboxes/:id/computer/:a/:b",
          "/v1/sandboxes/:id/computer/:a/:b/:c"})
      routes.push_back({method, pattern, no_desktop});
    for (const std::string_view pattern :
         {"/v1/devices", "/v1/devices/:device", "/v1/devices/:device/networks",
          "/v1/devices/:device/networks/:network", "/v1/devices/:device/sessions",
          "/v1/devices/:device/sessions/:session", "/v1/metrics/timeseries"})
      routes.push_back({method, pattern, not_offered});
  }
  routes.push_back({"GET", "/v1/sandboxes/:id/shell-ws", no_shell_websocket});
  return routes;
}

}  // namespace drupe::api
