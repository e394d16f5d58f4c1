#include "api/program/keys.h"

#include "api/json/writer.h"
#include "api/routes/router.h"
#include "api/service/ids.h"

namespace drupe::api {

Result<std::string> create_key(Store& store, const std::string& user_name) {
  DRUPE_ASSIGN(auto user, store.find_user(user_name));
  if (!user) {
    user = User{make_id("usr_"), user_name, user_name == kFirstUser};
    DRUPE_TRY(store.add_user(*user));
  }
  std::string secret = make_secret(kKeyPrefix);
  while (secret.starts_with(kTokenPrefix)) secret = make_secret(kKeyPrefix);
  Key key;
  key.id = make_id("key_");
  key.user_id = user->id;
  key.hint = secret_hint(secret);
  key.created_ns = now_ns();
  DRUPE_TRY(store.add_key(key, key_hash(secret)));
  return secret;
}

namespace {

Result<std::string> list_keys(Store& store, bool as_json) {
  DRUPE_ASSIGN(const auto keys, store.list_keys());
  JsonWriter json;
  json.begin_array();
  std::string text;
  for (const auto& [key, user] : keys) {
    json.begin_object().field("id", key.id).field("user", user.name).field("user_id", user.id);
    json.field("hint", key.hint).field("created_at", timestamp(key.created_ns));
    if (key.revoked_ns) json.field("revoked_at", timestamp(*key.revoked_ns));
    json.end_object();
    text += key.id + "  " + key.hint + "  " + timestamp(key.created_ns) + "  " + user.name +
            (key.revoked_ns ? "  revoked " + timestamp(*key.revoked_ns) : "") + "\n";
  }
  return as_json ? json.end_array().take() + "\n" : text;
}

}  // namespace

Result<std::string> run_key_command(Store& store, const CommandLine& line) {
  const std::string what = line.words.size() > 1 ? line.words[1] : "";
  if (what == "create" && line.words.size() == 2) {
    DRUPE_ASSIGN(const std::string secret, create_key(store, line.user.empty() ? kFirstUser : line.user));
    return secret + "\n";
  }
  if (what == "list" && line.words.size() == 2) return list_keys(store, line.json);
  if (what == "revoke" && line.words.size() == 3) {
    DRUPE_ASSIGN(const bool revoked, store.revoke_key(line.words[2], now_ns()));
    if (!revoked)
      return fail(ErrorCode::kNotFound, "No key in force has the id " + line.words[2].substr(0, 80),
                  "'druped key list' shows them; the id is not the key's text.");
    return std::string();
  }
  return fail(ErrorCode::kInvalidArgument, "key needs one of: create [--user NAME], list, revoke ID");
}

}  // namespace drupe::api
