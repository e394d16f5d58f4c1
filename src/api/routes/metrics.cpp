// Numbers: of the server for Prometheus, and of one sandbox (E82).
#include <algorithm>
#include <map>

#include "api/json/writer.h"
#include "api/routes/call.h"
#include "api/service/ids.h"

namespace drupe::api {
namespace {

constexpr std::chrono::milliseconds kSample{200};
constexpr std::chrono::seconds kStatsLimit{10};

Answer<Data> metrics(Call& call) {
  if (!call.caller.admin) return refuse(403, "admin_only", "only an administrator may read metrics");
  API_ASSIGN(const auto views, call.services.sandboxes.list(""));
  std::map<State, int> states;
  for (const SandboxView& view : views) ++states[view.state];
  Metrics::Gauge sandboxes{"druped_sandboxes", "Sandboxes by state.", {}};
  for (int i = 0; i <= static_cast<int>(State::kFailed); ++i) {
    const auto state = static_cast<State>(i);
    sandboxes.samples.push_back({"state", std::string(to_string(state)), static_cast<double>(states[state])});
  }
  std::vector<Metrics::Gauge> gauges{std::move(sandboxes)};
  if (const auto pool = call.services.sandboxes.pool()) {
    const PoolStatus& status = pool->status;
    gauges.push_back({"druped_pool_ready",
                      "Sandboxes that wait in the pool.",
                      {{"", "", static_cast<double>(status.ready)}}});
    gauges.push_back({"druped_pool_sandboxes",
                      "What became of the pool's sandboxes since the start.",
                      {{"how", "made", static_cast<double>(status.made)},
                       {"how", "claimed", static_cast<double>(status.claimed)},
                       {"how", "evicted", static_cast<double>(status.evicted)},
                       {"how", "failed", static_cast<double>(status.failed)}}});
  }
  Response response;
  response.content_type = "text/plain; version=0.0.4";
  response.body = call.services.metrics.text(gauges);
  API_TRY(call.exchange.send(response));
  return std::nullopt;
}

Result<GuestStats> stats_of(Sandboxes::Access& access) {
  DRUPE_ASSIGN(const std::string body, access.client->call(static_cast<std::uint16_t>(RequestKind::kStats),
                                                           {}, Clock::now() + kStatsLimit));
  return GuestStats::decode(as_bytes(body));
}

Answer<Data> sandbox_metrics(Call& call) {
  API_ASSIGN(auto access,
             call.services.sandboxes.access(call.caller.id, call.sandbox(), "reading its metrics"));
  API_ASSIGN(const GuestStats first, stats_of(access));
  API_TRY(access.engine->loop().run_until([] { return false; }, Clock::now() + kSample));
  API_ASSIGN(const GuestStats last, stats_of(access));
  const auto less = [](std::uint64_t whole, std::uint64_t part) { return whole > part ? whole - part : 0; };
  const double wall = static_cast<double>(less(last.uptime_ns, first.uptime_ns));
  const double busy = static_cast<double>(less(last.cpu_user_ns, first.cpu_user_ns));
  JsonWriter json;
  json.begin_object().field("id", call.sandbox());
  json.field("cpu_pct", wall > 0 ? 100 * busy / wall : 0);
  json.field("mem_used_mib", less(last.memory_total, last.memory_available) >> 20);
  json.field("mem_total_mib", last.memory_total >> 20);
  json.field("disk_used_mib", less(last.disk_total, last.disk_free) >> 20);
  json.field("disk_total_mib", last.disk_total >> 20).field("processes", last.processes);
  json.field("oom_kills", last.oom_kills).field("sampled_at", timestamp(now_ns()));
  return json.end_object().take();
}

}  // namespace

std::vector<Route> metric_routes() {
  return {
      {"GET", "/metrics", metrics},
      {"GET", "/v1/sandboxes/:id/metrics", sandbox_metrics, false, true},
  };
}

}  // namespace drupe::api
