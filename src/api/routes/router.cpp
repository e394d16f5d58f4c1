#include "api/routes/router.h"

#include <algorithm>
#include <array>

#include "api/json/writer.h"
#include "api/routes/documents.h"
#include "api/routes/preview.h"
#include "api/service/ids.h"
#include "api/service/request_log.h"
#include "base/log.h"
#include "image/digest.h"

namespace drupe::api {
namespace {

std::vector<std::string> split(std::string_view pattern) {
  std::vector<std::string> parts;
  pattern.remove_prefix(1);
  while (true) {
    const auto slash = pattern.find('/');
    parts.emplace_back(pattern.substr(0, slash));
    if (slash == std::string_view::npos) return parts;
    pattern.remove_prefix(slash + 1);
  }
}

bool matches(const std::vector<std::string>& pattern, const std::vector<std::string>& segments) {
  return std::ranges::equal(pattern, segments, [](const std::string& part, const std::string& segment) {
    return part.starts_with(':') ? !segment.empty() : part == segment;
  });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string key_hash(std::string_view key) {
  return sha256_hex(key);
}

Answer<Value> Call::object(std::size_t limit) {
  auto body = exchange.whole_body(limit);
  if (!body && body.error().code == ErrorCode::kLimit) return refuse(413, "too_large", body.error().message);
  API_ASSIGN(const std::string text, std::move(body));
  API_ASSIGN(Value value, parse_object(text));
  return value;
}

Answer<Page> read_page(const RequestHead& head) {
  Page page;
  const auto number = [&](std::string_view name, std::size_t& value) -> bool {
    const auto text = head.parameter(name);
    if (!text || text->empty()) return true;
    const bool digits = std::ranges::all_of(*text, [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || text->size() > 9) return false;
    value = std::stoul(std::string(*text));
    return true;
  };
  if (!number("limit", page.limit))
    return refuse(400, "invalid_argument", "limit must be a number from 1 to 500");
  if (!number("offset", page.offset))
    return refuse(400, "invalid_argument", "offset must be a number from 0");
  if (page.limit == 0) page.limit = 50;
  page.limit = std::min<std::size_t>(page.limit, 500);
  return page;
}

std::string paginated(const std::vector<std::string>& items, const Page& page) {
  const std::size_t first = std::min(page.offset, items.size());
  const std::size_t count = std::min(page.limit, items.size() - first);
  JsonWriter json;
  json.begin_object().key("data").begin_array();
  for (std::size_t i = first; i < first + count; ++i) json.raw(items[i]);
  json.end_array().key("pagination").begin_object();
  json.field("total", items.size())
      .field("limit", page.limit)
      .field("offset", page.offset)
      .field("count", count);
  return json.end_object().end_object().take();
}

Router::Router(Services services) : services_(std::move(services)) {
  for (const auto& group : {health_routes(), catalogue_routes(), sandbox_routes(), resource_routes(),
                            network_routes(), template_routes(), token_routes(), metric_routes(),
                            fork_routes(), document_routes(), unsupported_routes()})
    for (const Route& route : group) entries_.push_back({route, split(route.pattern)});
  // What is done within a sandbox.
  for (const auto& group :
       {exec_routes(), file_routes(), tree_routes(), process_routes(), tunnel_routes(), shell_routes()})
    for (Route route : group) {
      route.runtime = true;
      entries_.push_back({route, split(route.pattern)});
    }
  std::vector<Route> routes;
  for (const Entry& entry : entries_) routes.push_back(entry.route);
  services_.openapi = openapi_document(routes);
}

Answer<Router::Caller> Router::authenticate(const RequestHead& head) {
  auto key = head.header("x-api-key");
  // What collects metrics can often send no other header.
  constexpr std::string_view kBearer = "Bearer ";
  if (const auto bearer = head.header("authorization");
      !key && bearer && head.segments == std::vector<std::string>{"metrics"} && bearer->starts_with(kBearer))
    key = bearer->substr(kBearer.size());
  const ApiError unknown{401, "invalid api key", "", "auth"};
  if (!key || trimmed(*key).empty()) return std::unexpected(ApiError{401, "missing api key", "", "auth"});
  // Which of several was meant is anybody's guess.
  if (std::ranges::count(head.headers, "x-api-key", &Header::name) > 1) return std::unexpected(unknown);
  const std::string hash = key_hash(trimmed(*key));
  if (trimmed(*key).starts_with(kTokenPrefix)) {
    API_ASSIGN(auto holder, services_.tokens.holder_of_token(hash));
    if (!holder) return std::unexpected(unknown);
    return Caller{std::move(holder->owner), std::move(holder->sandbox_id)};
  }
  API_ASSIGN(const auto user, services_.store.user_of_key(hash));
  if (!user) return std::unexpected(unknown);
  return Caller{*user, {}};
}

Status Router::check_token(const Entry* found, const RequestHead& head, const Caller& caller) {
  if (caller.only.empty()) return {};
  if (found == nullptr || !found->route.runtime)
    return fail(ErrorCode::kPermission, "a delegated token is not allowed to do this");
  const auto id = std::ranges::find(found->segments, ":id") - found->segments.begin();
  if (head.segments[static_cast<std::size_t>(id)] != caller.only)
    return fail(ErrorCode::kNotFound, "sandbox not found");
  return {};
}

Answer<Data> Router::answer(Exchange& exchange, Told& told) {
  const RequestHead& head = exchange.head();
  const Entry* found = nullptr;
  bool other_method = false;
  for (const Entry& entry : entries_) {
    if (!matches(entry.segments, head.segments)) continue;
    const bool same =
        entry.route.method == head.method || (head.method == "HEAD" && entry.route.method == "GET");
    if (same) {
      found = &entry;
      break;
    }
    other_method = true;
  }
  if (found != nullptr) told.route = found->route.pattern;
  Call call{exchange, services_, {}, {}, {}};
  // Asked before anything is said about what exists: an address has one answer for strangers.
  if (found == nullptr || !found->route.open) {
    auto caller = authenticate(head);
    if (!caller) return std::unexpected(std::move(caller).error());
    told.user = caller->user;
    told.by = caller->only.empty() ? "key" : "token";
    API_TRY(check_token(found, head, *caller));
    call.caller = std::move(caller->user);
  }
  if (found == nullptr && other_method)
    return refuse(405, "method_not_allowed", "this address does not know the method " + head.method);
  if (found == nullptr) return refuse(404, "not_found", "there is nothing at this address: not found");
  for (std::size_t i = 0; i < found->segments.size(); ++i)
    if (found->segments[i].starts_with(':')) call.path[found->segments[i].substr(1)] = head.segments[i];
  if (const auto id = call.path.find("id"); id != call.path.end()) told.object = id->second;
  auto data = found->route.handler(call);
  if (!call.made.empty()) told.object = call.made;
  return data;
}

void Router::handle(Exchange& exchange) {
  const auto begun = Clock::now();
  const RequestScope scope(exchange.request_id());
  Told told;
  serve(exchange, told);
  tell(exchange, told, std::chrono::duration<double, std::milli>(Clock::now() - begun).count());
}

void Router::serve(Exchange& exchange, Told& told) {
  if (const auto preview = preview_of(exchange.head(), services_.sandboxes.settings().preview_domain)) {
    told.route = "preview";
    told.object = preview->id;
    return serve_preview(exchange, services_, *preview);
  }
  auto data = answer(exchange, told);
  if (!data) {
    told.code = data.error().code;
    if (told.code.empty()) told.code = data.error().status == 401 ? "unauthorized" : "refused";
  }
  // Clients of upgrades read a refusal to the end of the connection.
  if (!data && exchange.head().header_has("upgrade", "tcp-tunnel")) exchange.close_after();
  if (exchange.answered()) {
    if (!data) exchange.abort();
    return;
  }
  if (data && !*data) return exchange.abort();
  if (!data && data.error().status >= 500)
    log(LogLevel::kWarning, exchange.request_id() + ": " + data.error().message);
  static_cast<void>(exchange.send(data ? success(**data) : failure(data.error())));
}

void Router::tell(const Exchange& exchange, const Told& told, double ms) {
  constexpr std::array<std::string_view, 7> kMethods{"GET",   "HEAD",   "POST",   "PUT",
                                                     "PATCH", "DELETE", "OPTIONS"};
  const auto known = std::ranges::find(kMethods, exchange.head().method);
  const std::string_view method = known == kMethods.end() ? "other" : *known;
  const int status = exchange.status();
  services_.metrics.count_request(method, told.route, status, ms);
  if (!told.code.empty()) services_.metrics.count_error(told.code);
  if (services_.log_requests)
    log_request({exchange.request_id(), exchange.peer(), method, told.route, status, ms, told.user.id,
                 told.object, told.code});
  // Looking changes nothing; strangers could fill the file.
  const bool looks = method == "GET" || method == "HEAD";
  if (told.user.id.empty() || (looks && status != 403)) return;
  services_.audit.write({exchange.request_id(), exchange.peer(), told.user.id, told.user.name, told.by,
                         std::string(method) + " " + std::string(told.route), told.object, status});
}

}  // namespace drupe::api
