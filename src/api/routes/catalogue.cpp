// The catalogue: E05, E06.
#include <thread>

#include "api/json/writer.h"
#include "api/routes/call.h"
#include "api/service/shapes.h"

namespace drupe::api {
namespace {

Answer<Data> list_shapes(Call& call) {
  auto page = read_page(call.exchange.head());
  if (!page) return std::unexpected(page.error());
  std::vector<std::string> items;
  for (const Shape& shape : shapes()) {
    JsonWriter json;
    json.begin_object().field("id", shape.id);
    json.field("vcpu", vcpus_here(shape, std::thread::hardware_concurrency()))
        .field("mem_mib", shape.mem_mib);
    json.field("default_disk_mib", kDefaultDiskMib);
    if (shape.cpu_quota_pct != 0) json.field("cpu_quota_pct", shape.cpu_quota_pct);
    items.push_back(json.end_object().take());
  }
  return paginated(items, *page);
}

Answer<Data> list_rootfs(Call& call) {
  API_ASSIGN(const auto entries, call.services.rootfs.list());
  JsonWriter json;
  // Names that a create takes; one that is being prepared is waited for.
  std::vector<std::string> names;
  for (const RootfsEntry& entry : entries)
    if (entry.state == RootfsState::kReady || entry.state == RootfsState::kPreparing)
      names.push_back(entry.name);
  json.begin_object().field("rootfs", names);
  json.field("default", call.services.sandboxes.settings().default_rootfs);
  json.key("entries").begin_array();
  for (const RootfsEntry& entry : entries) {
    json.begin_object().field("name", entry.name).field("state", to_string(entry.state));
    if (!entry.detail.empty()) json.field("description", entry.detail);
    json.end_object();
  }
  return json.end_array().end_object().take();
}

}  // namespace

std::vector<Route> catalogue_routes() {
  return {{"GET", "/v1/shapes", list_shapes, true}, {"GET", "/v1/rootfs", list_rootfs, true}};
}

}  // namespace drupe::api
