#include "api/routes/view.h"

#include "api/json/writer.h"

namespace drupe::api {

std::string sandbox_json(const SandboxView& view, const SandboxSettings& settings, bool created) {
  const SandboxRow& row = view.row;
  JsonWriter json;
  json.begin_object();
  json.field("id", row.id).field("status", to_string(view.state)).field("name", row.name);
  json.field("vcpu", row.vcpu).field("mem_mib", row.mem_mib).field("disk_mib", row.disk_mib);
  json.field("shape", row.shape).field("rootfs", row.rootfs).field("region", settings.region);
  json.field("created_at", timestamp(row.created_ns)).field("created_by", row.owner);
  json.field("ingress_enabled", row.ingress);
  if (row.ingress) {
    std::string url = settings.preview_template;
    if (const auto at = url.find("<id>"); at != std::string::npos) url.replace(at, 4, row.id);
    json.field("ingress_url_template", url);
  }
  if (!view.ip.empty()) json.field("ip", view.ip);
  if (row.running_ns) json.field("running_at", timestamp(*row.running_ns));
  if (view.paused_ns) json.field("paused_at", timestamp(*view.paused_ns));
  if (row.resumed_ns) json.field("last_resumed_at", timestamp(*row.resumed_ns));
  if (row.destroyed_ns) json.field("destroyed_at", timestamp(*row.destroyed_ns));
  if (row.spawn_us) json.field("spawn_ms", static_cast<double>(*row.spawn_us) / 1000);
  if (row.egress || created) json.field("egress", row.egress.value_or(std::vector<std::string>{"*"}));
  if (!row.envs.empty()) {
    json.key("envs").begin_array();
    for (const auto& [name, value] : row.envs) json.text(name);
    json.end_array();
  }
  if (!row.ssh_pubkeys.empty()) json.field("ssh_pubkeys", row.ssh_pubkeys);
  if (row.forked_from) json.field("forked_from", *row.forked_from);
  if (row.auto_pause_s) json.field("auto_pause_after_seconds", *row.auto_pause_s);
  if (created) json.field("bandwidth_quota_bytes", -1);
  return json.end_object().take();
}

}  // namespace drupe::api
