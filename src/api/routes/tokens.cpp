// Delegated tokens of a sandbox: E56 to E59.
#include "api/json/writer.h"
#include "api/routes/call.h"
#include "api/routes/router.h"
#include "api/service/ids.h"

namespace drupe::api {
namespace {

/// The caller's sandbox, for which there may be a token: one that has not ended.
Result<SandboxView> tokened(Call& call) {
  DRUPE_ASSIGN(SandboxView view, call.services.sandboxes.find(call.caller.id, call.sandbox()));
  if (view.state == State::kDestroying || view.state == State::kDestroyed || view.state == State::kFailed)
    return fail(ErrorCode::kInvalidState, "sandbox is " + std::string(to_string(view.state)));
  return view;
}

drupe::JsonWriter& write_times(drupe::JsonWriter& json, const Token& token) {
  json.field("created_at", timestamp(token.created_ns));
  if (token.rotated_ns) json.field("rotated_at", timestamp(*token.rotated_ns));
  return json;
}

std::string with_secret(const Token& token, const std::string& secret) {
  JsonWriter json;
  json.begin_object().field("token", secret).field("enabled", true);
  write_times(json, token);
  return json.end_object().take();
}

Answer<Data> create(Call& call) {
  API_ASSIGN(const SandboxView view, tokened(call));
  const std::string secret = make_secret(kTokenPrefix);
  const Token token{view.row.id, secret_hint(secret), now_ns(), {}};
  auto added = call.services.tokens.add_token(token, key_hash(secret));
  if (!added && added.error().code == ErrorCode::kAlreadyExists)
    return refuse(409, "already_exists", "the sandbox has an access token; rotate it, or delete it first");
  API_TRY(std::move(added));
  return with_secret(token, secret);
}

Answer<Data> rotate(Call& call) {
  API_ASSIGN(const SandboxView view, tokened(call));
  API_ASSIGN(auto token, call.services.tokens.find_token(view.row.id));
  if (!token) return refuse(404, "not_found", "access token not found");
  const std::string secret = make_secret(kTokenPrefix);
  token->hint = secret_hint(secret);
  token->rotated_ns = now_ns();
  API_ASSIGN(const bool replaced, call.services.tokens.replace_token(*token, key_hash(secret)));
  if (!replaced) return refuse(404, "not_found", "access token not found");
  return with_secret(*token, secret);
}

Answer<Data> get(Call& call) {
  API_ASSIGN(const SandboxView view, call.services.sandboxes.find(call.caller.id, call.sandbox()));
  API_ASSIGN(const auto token, call.services.tokens.find_token(view.row.id));
  JsonWriter json;
  json.begin_object().field("enabled", token.has_value());
  if (token) write_times(json.field("token_hint", token->hint), *token);
  return json.end_object().take();
}

Answer<Data> drop(Call& call) {
  API_ASSIGN(const SandboxView view, call.services.sandboxes.find(call.caller.id, call.sandbox()));
  API_TRY(call.services.tokens.drop_token(view.row.id));
  return R"({"enabled":false})";
}

}  // namespace

std::vector<Route> token_routes() {
  return {
      {"POST", "/v1/sandboxes/:id/access-token", create},
      {"GET", "/v1/sandboxes/:id/access-token", get},
      {"DELETE", "/v1/sandboxes/:id/access-token", drop},
      {"POST", "/v1/sandboxes/:id/access-token/rotate", rotate},
  };
}

}  // namespace drupe::api
