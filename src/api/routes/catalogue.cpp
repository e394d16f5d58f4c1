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
  API_ASSIGN(const RootfsList rootfs, call.services.sandboxes.rootfs());
  JsonWriter json;
  json.begin_object().field("rootfs", rootfs.names).field("default", rootfs.preferred);
  json.key("entries").begin_array();
  for (const std::string& name : rootfs.names) json.begin_object().field("name", name).end_object();
  return json.end_array().end_object().take();
}

}  // namespace

std::vector<Route> catalogue_routes() {
  return {{"GET", "/v1/shapes", list_shapes, true}, {"GET", "/v1/rootfs", list_rootfs, true}};
}

}  // namespace drupe::api
