// One call of the API: who makes it, what it says, and the services that answer it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/http/exchange.h"
#include "api/json/value.h"
#include "api/routes/envelope.h"
#include "api/service/audit.h"
#include "api/service/metrics.h"
#include "api/service/networks.h"
#include "api/service/processes.h"
#include "api/service/rootfs.h"
#include "api/service/sandboxes.h"
#include "api/service/templates.h"
#include "api/store/store.h"
#include "api/store/token_store.h"

namespace drupe::api {

struct Services {
  Store& store;
  Sandboxes& sandboxes;
  Processes& processes;
  Networks& networks;
  RootfsCatalogue& rootfs;
  Templates& templates;
  TokenStore& tokens;
  Metrics& metrics;
  Audit& audit;
  bool log_requests = true;
  std::string openapi;  ///< The router's own; JSON.
};

struct Call {
  Exchange& exchange;
  Services& services;
  User caller;                                           ///< Empty on open routes.
  std::map<std::string, std::string, std::less<>> path;  ///< Values of ":name" segments.
  std::string made;                                      ///< Id of what the call has made.

  [[nodiscard]] const std::string& part(std::string_view name) const { return path.find(name)->second; }
  /// The sandbox that the path names.
  [[nodiscard]] const std::string& sandbox() const { return part("id"); }
  /// The body as an object, at most `limit` bytes; a missing one is {}.
  Answer<Value> object(std::size_t limit = std::size_t{1} << 20);
};

/// Finished JSON for the envelope; nothing when the handler has answered by itself.
using Data = std::optional<std::string>;
using RouteHandler = Answer<Data> (*)(Call&);

struct Route {
  std::string_view method;
  std::string_view pattern;  ///< "/v1/sandboxes/:id/exec"
  RouteHandler handler;
  bool open = false;     ///< Without a key.
  bool runtime = false;  ///< Also with the delegated token of the sandbox that its ":id" names.
};

struct Page {
  std::size_t limit = 50, offset = 0;
};
/// `limit` (1..500, 0 and absent: 50) and `offset` of the query. 400 for what is no number.
Answer<Page> read_page(const RequestHead& head);
/// {"data":[...],"pagination":{...}} of the page's part of `items`, each finished JSON.
/// The absolute `path` of the query, for the guest.
Answer<std::string> read_path(const RequestHead& head);
[[nodiscard]] std::string paginated(const std::vector<std::string>& items, const Page& page);

// The groups of routes.
[[nodiscard]] std::vector<Route> health_routes();
[[nodiscard]] std::vector<Route> catalogue_routes();
[[nodiscard]] std::vector<Route> sandbox_routes();
[[nodiscard]] std::vector<Route> exec_routes();
[[nodiscard]] std::vector<Route> file_routes();
[[nodiscard]] std::vector<Route> process_routes();
[[nodiscard]] std::vector<Route> resource_routes();
[[nodiscard]] std::vector<Route> tunnel_routes();
[[nodiscard]] std::vector<Route> shell_routes();
[[nodiscard]] std::vector<Route> tree_routes();
[[nodiscard]] std::vector<Route> fork_routes();
[[nodiscard]] std::vector<Route> document_routes();
[[nodiscard]] std::vector<Route> network_routes();
[[nodiscard]] std::vector<Route> template_routes();
[[nodiscard]] std::vector<Route> token_routes();
[[nodiscard]] std::vector<Route> metric_routes();
[[nodiscard]] std::vector<Route> unsupported_routes();

}  // namespace drupe::api
