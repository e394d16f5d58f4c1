// Sandboxes and their life: E07 to E17, E22, E23.
#include <algorithm>

#include "api/json/writer.h"
#include "api/routes/call.h"
#include "api/routes/fork_fields.h"
#include "api/routes/view.h"

namespace drupe::api {
namespace {

constexpr std::int64_t kMostAutoPause = 86'400;

std::string shown(const Call& call, const SandboxView& view, bool created = false) {
  return sandbox_json(view, call.services.sandboxes.settings(), created);
}

Answer<CreateRequest> read_create(const Value& body, const SandboxSettings& settings) {
  CreateRequest request;
  API_ASSIGN(const auto shape, text_field(body, "shape"));
  if (!shape || shape->empty()) return refuse(400, "invalid_argument", "shape is needed");
  request.shape = *shape;
  API_ASSIGN(request.rootfs, text_field(body, "rootfs"));
  API_ASSIGN(request.name, text_field(body, "name"));
  if (request.rootfs && request.rootfs->empty()) request.rootfs.reset();
  if (request.name && request.name->empty()) request.name.reset();
  API_ASSIGN(const auto disk, integer_field(body, "disk_mib", 0, std::int64_t{1} << 40));
  request.disk_mib = disk.value_or(0);
  API_ASSIGN(request.egress, texts_field(body, "egress"));
  API_ASSIGN(auto envs, map_field(body, "envs"));
  request.envs = std::move(envs).value_or(std::map<std::string, std::string>());
  API_ASSIGN(auto keys, texts_field(body, "ssh_pubkeys"));
  request.ssh_pubkeys = std::move(keys).value_or(std::vector<std::string>());
  API_ASSIGN(const auto ingress, bool_field(body, "ingress_enabled"));
  request.ingress = ingress.value_or(false);
  API_ASSIGN(request.auto_pause_s,
             integer_field(body, "auto_pause_after_seconds", settings.least_auto_pause_s, kMostAutoPause));
  return request;
}

/// Fields that ask for what this server does not have; what asks for nothing is good.
Answer<void> check_unsupported(const Value& body, const SandboxSettings& settings) {
  API_ASSIGN(const auto region, text_field(body, "region"));
  if (region && !region->empty() && *region != settings.region)
    return refuse(400, "region_mismatch", "this server's region is \"" + settings.region + "\"");
  API_ASSIGN(const auto quota, integer_field(body, "bandwidth_quota_bytes", INT64_MIN, INT64_MAX));
  if (quota.value_or(0) != 0)
    return refuse(400, "invalid_argument", "bandwidth_quota_bytes cannot be set when a sandbox is created");
  if (const Value* const disks = body.find("disks"); disks != nullptr && !disks->items.empty())
    return std::unexpected(ApiError{503, "disks API not configured", "disks_not_configured"});
  return {};
}

/// [{"id": id or name}]
Answer<std::vector<NetworkRow>> read_networks(Call& call, const Value& body) {
  constexpr std::size_t kMost = 16;
  std::vector<NetworkRow> rows;
  const Value* const listed = body.find("networks");
  if (listed == nullptr) return rows;
  if (listed->items.size() > kMost)
    return refuse(400, "invalid_argument", "networks has more than 16 entries");
  for (const Value& item : listed->items) {
    API_ASSIGN(const auto id, text_field(item, "id"));
    if (!id || id->empty()) return refuse(400, "invalid_argument", "each of networks needs an id");
    API_ASSIGN(NetworkRow row, call.services.networks.own_row(call.caller.id, *id));
    if (std::ranges::find(rows, row.id, &NetworkRow::id) == rows.end()) rows.push_back(std::move(row));
  }
  return rows;
}

Answer<Data> create(Call& call) {
  auto body = call.object();
  if (!body) return std::unexpected(body.error());
  auto request = read_create(*body, call.services.sandboxes.settings());
  if (!request) return std::unexpected(request.error());
  if (auto good = check_unsupported(*body, call.services.sandboxes.settings()); !good)
    return std::unexpected(good.error());
  auto networks = read_networks(call, *body);
  if (!networks) return std::unexpected(networks.error());
  request->networks = *std::move(networks);
  API_ASSIGN(const SandboxView view, call.services.sandboxes.create(call.caller.id, *request));
  call.made = view.row.id;
  return shown(call, view, true);
}

Answer<Data> list(Call& call) {
  auto page = read_page(call.exchange.head());
  if (!page) return std::unexpected(page.error());
  std::optional<State> wanted;
  if (const auto word = call.exchange.head().parameter("status"); word && !word->empty()) {
    wanted = state_from(*word);
    if (!wanted) return refuse(400, "invalid_argument", "status is none of a sandbox's states");
  }
  API_ASSIGN(const auto views, call.services.sandboxes.list(call.caller.id));
  std::vector<std::string> items;
  for (const SandboxView& view : views)
    if (!wanted || view.state == *wanted) items.push_back(shown(call, view));
  return paginated(items, *page);
}

Answer<Data> by_ip(Call& call) {
  API_ASSIGN(const auto views, call.services.sandboxes.list(call.caller.id));
  const SandboxView* found = nullptr;
  for (const SandboxView& view : views) {
    if (view.ip != call.part("ip")) continue;
    // Each sandbox is alone in a network of its own, and so several may have one address.
    if (found != nullptr) return refuse(409, "ambiguous", "several of your sandboxes have this address");
    found = &view;
  }
  if (found == nullptr) return refuse(404, "not_found", "sandbox not found");
  return shown(call, *found);
}

Answer<Data> get(Call& call) {
  API_ASSIGN(const SandboxView view, call.services.sandboxes.find(call.caller.id, call.sandbox()));
  return shown(call, view);
}

Answer<Data> patch(Call& call) {
  auto body = call.object();
  if (!body) return std::unexpected(body.error());
  PatchRequest request;
  API_ASSIGN(request.ingress, bool_field(*body, "ingress_enabled"));
  API_ASSIGN(request.auto_pause_s,
             integer_field(*body, "auto_pause_after_seconds",
                           call.services.sandboxes.settings().least_auto_pause_s, kMostAutoPause));
  API_ASSIGN(const auto disable, bool_field(*body, "disable_auto_pause"));
  request.disable_auto_pause = disable.value_or(false);
  API_ASSIGN(const SandboxView view, call.services.sandboxes.patch(call.caller.id, call.sandbox(), request));
  return shown(call, view);
}

Answer<Data> destroy(Call& call) {
  API_ASSIGN(const SandboxView view, call.services.sandboxes.destroy(call.caller.id, call.sandbox()));
  JsonWriter json;
  json.begin_object().field("id", view.row.id).field("status", to_string(view.state));
  return json.end_object().take();
}

Answer<Data> pause(Call& call) {
  API_ASSIGN(const SandboxView view, call.services.sandboxes.pause(call.caller.id, call.sandbox()));
  return shown(call, view);
}

Answer<Data> resume(Call& call) {
  API_ASSIGN(const SandboxView view, call.services.sandboxes.resume(call.caller.id, call.sandbox()));
  return shown(call, view);
}

Answer<Data> fork(Call& call) {
  auto body = call.object();
  if (!body) return std::unexpected(body.error());
  API_ASSIGN(const ForkRequest request, read_fork(*body));
  API_ASSIGN(const SandboxView view, call.services.sandboxes.fork(call.caller.id, call.sandbox(), request));
  call.made = view.row.id;
  return shown(call, view);
}

std::string egress_json(const SandboxView& view) {
  JsonWriter json;
  json.begin_object().field("id", view.row.id);
  json.field("egress", view.row.egress.value_or(std::vector<std::string>{"*"}));
  return json.end_object().take();
}

Answer<Data> get_egress(Call& call) {
  API_ASSIGN(const SandboxView view, call.services.sandboxes.find(call.caller.id, call.sandbox()));
  return egress_json(view);
}

Answer<Data> put_egress(Call& call) {
  auto body = call.object();
  if (!body) return std::unexpected(body.error());
  API_ASSIGN(const auto egress, texts_field(*body, "egress"));
  API_ASSIGN(const SandboxView view,
             call.services.sandboxes.set_egress(call.caller.id, call.sandbox(), egress));
  return egress_json(view);
}

Answer<Data> add_ssh_pubkeys(Call& call) {
  auto body = call.object();
  if (!body) return std::unexpected(body.error());
  API_ASSIGN(const auto keys, texts_field(*body, "keys"));
  if (!keys) return refuse(400, "invalid_argument", "keys is needed");
  API_ASSIGN(const SandboxView view,
             call.services.sandboxes.add_ssh_pubkeys(call.caller.id, call.sandbox(), *keys));
  JsonWriter json;
  return json.begin_object().field("count", view.row.ssh_pubkeys.size()).end_object().take();
}

}  // namespace

std::vector<Route> sandbox_routes() {
  return {
      {"POST", "/v1/sandboxes", create},
      {"GET", "/v1/sandboxes", list},
      {"GET", "/v1/sandboxes/by-ip/:ip", by_ip},
      {"GET", "/v1/sandboxes/:id", get, false, true},
      {"PATCH", "/v1/sandboxes/:id", patch},
      {"DELETE", "/v1/sandboxes/:id", destroy},
      {"POST", "/v1/sandboxes/:id/pause", pause},
      {"POST", "/v1/sandboxes/:id/resume", resume},
      {"POST", "/v1/sandboxes/:id/fork", fork},
      {"GET", "/v1/sandboxes/:id/egress", get_egress},
      {"PUT", "/v1/sandboxes/:id/egress", put_egress},
      {"POST", "/v1/sandboxes/:id/ssh-pubkeys", add_ssh_pubkeys},
  };
}

}  // namespace drupe::api
