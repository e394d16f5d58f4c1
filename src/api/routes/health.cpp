// Health and identity: E01 to E04, and what this server honestly is.
#include <thread>

#include "api/json/writer.h"
#include "api/routes/call.h"
#include "engine/admission.h"

namespace drupe::api {
namespace {

Answer<Data> healthz(Call& /*call*/) {
  return R"({"up":true})";
}

Answer<Data> readyz(Call& call) {
  const auto counted = call.services.store.find_user("");
  if (counted) return R"({"ready":true})";
  Response response;
  response.status = 503;
  JsonWriter json;
  json.begin_object().field("status", "fail").key("data").begin_object().field("ready", false);
  json.field("reason", counted.error().message).end_object().end_object();
  response.body = json.take();
  static_cast<void>(call.exchange.send(response));
  return std::nullopt;
}

Answer<Data> whoami(Call& call) {
  API_ASSIGN(const auto views, call.services.sandboxes.list(call.caller.id));
  int running = 0;
  int paused = 0;
  int total = 0;
  for (const SandboxView& view : views) {
    if (view.state == State::kDestroyed || view.state == State::kFailed) continue;
    ++total;
    running += view.state == State::kRunning ? 1 : 0;
    paused += view.state == State::kPaused ? 1 : 0;
  }
  JsonWriter json;
  json.begin_object().field("user_id", call.caller.id).key("stats").begin_object();
  json.field("running", running).field("paused", paused).field("other", total - running - paused);
  return json.field("total", total).end_object().end_object().take();
}

Answer<Data> hosts(Call& call) {
  if (!call.caller.admin) return refuse(403, "admin_only", "only an administrator may list hosts");
  auto page = read_page(call.exchange.head());
  if (!page) return std::unexpected(page.error());
  API_ASSIGN(const auto views, call.services.sandboxes.list(""));
  API_ASSIGN(const auto entries, call.services.rootfs.list());
  std::vector<std::string> ready;
  for (const RootfsEntry& entry : entries)
    if (entry.state == RootfsState::kReady) ready.push_back(entry.name);
  API_ASSIGN(const MemoryRoom room, memory_room());
  int running = 0;
  for (const SandboxView& view : views) running += view.state == State::kRunning ? 1 : 0;
  JsonWriter json;
  json.begin_object().field("id", "local").field("status", "active").field("free_mib", room.available_mib);
  json.field("vm_count", running).field("rootfses", ready).end_object();
  return paginated({json.take()}, *page);
}

Answer<Data> capabilities(Call& call) {
  const SandboxSettings& settings = call.services.sandboxes.settings();
  API_ASSIGN(const std::string isolation, call.services.sandboxes.isolation());
  JsonWriter json;
  json.begin_object().field("server", "druped").field("version", DRUPE_VERSION).field("api", "v1");
  json.field("isolation", isolation).field("accept_emulation", settings.accept_emulation);
  json.field("creates", settings.accept_emulation || isolation == "hardware-virtualized");
  json.key("egress").begin_object();
  json.field("forms", std::vector<std::string>{"host", "host:port", "*.host", "ip", "ip:port", "cidr",
                                               "cidr:port", "[v6]:port", "*"});
  json.field("names_enforced", true).field("link_local_open", false);
  json.field("open_ranges", settings.open_ranges).end_object();
  if (const auto pool = call.services.sandboxes.pool()) {
    json.key("pool").begin_object().field("image", pool->image).field("shape", pool->shape);
    json.field("ready", pool->status.ready).end_object();
  }
  json.key("limits").begin_object();
  json.field("upload_bytes", std::int64_t{500} << 20).field("disk_mib", settings.most_disk_mib);
  json.field("host_cpus", std::max(std::thread::hardware_concurrency(), 1U));
  json.field("retention_seconds", settings.retention.count()).end_object();
  return json.end_object().take();
}

}  // namespace

std::vector<Route> health_routes() {
  return {
      {"GET", "/healthz", healthz, true},
      {"GET", "/readyz", readyz, true},
      {"GET", "/v1/whoami", whoami},
      {"GET", "/v1/hosts", hosts},
      {"GET", "/v1/capabilities", capabilities},
  };
}

}  // namespace drupe::api
