// Delegated tokens in SQLite.
#include <mutex>

#include "api/store/sqlite.h"
#include "api/store/token_store.h"

namespace drupe::api {
namespace {

class SqliteTokens final : public TokenStore {
 public:
  explicit SqliteTokens(std::unique_ptr<Database> database) : database_(std::move(database)) {}

  Status add_token(const Token& token, std::string_view hash) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement add, database_->prepare("INSERT INTO tokens (sandbox_id, hash, hint, created_ns) "
                                                   "VALUES (?, ?, ?, ?)"));
    return add.bind(token.sandbox_id).bind(hash).bind(token.hint).bind(token.created_ns).run();
  }

  Result<bool> replace_token(const Token& token, std::string_view hash) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(
        Statement replace,
        database_->prepare("UPDATE tokens SET hash = ?, hint = ?, rotated_ns = ? WHERE sandbox_id = ?"));
    DRUPE_TRY(
        replace.bind(hash).bind(token.hint).bind_optional(token.rotated_ns).bind(token.sandbox_id).run());
    return database_->changes() != 0;
  }

  Result<std::optional<Token>> find_token(std::string_view sandbox_id) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement find,
                 database_->prepare(
                     "SELECT sandbox_id, hint, created_ns, rotated_ns FROM tokens WHERE sandbox_id = ?"));
    find.bind(sandbox_id);
    DRUPE_ASSIGN(const bool found, find.step());
    if (!found) return std::nullopt;
    return Token{find.text(0), find.text(1), find.integer(2), find.maybe_integer(3)};
  }

  Status drop_token(std::string_view sandbox_id) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement drop, database_->prepare("DELETE FROM tokens WHERE sandbox_id = ?"));
    return drop.bind(sandbox_id).run();
  }

  Result<std::optional<Holder>> holder_of_token(std::string_view hash) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement find, database_->prepare("SELECT sandbox_id, users.id, users.name, users.admin "
                                                    "FROM tokens JOIN sandboxes ON sandboxes.id = sandbox_id "
                                                    "JOIN users ON users.id = owner "
                                                    "WHERE hash = ? AND phase IN ('creating', 'live')"));
    find.bind(hash);
    DRUPE_ASSIGN(const bool found, find.step());
    if (!found) return std::nullopt;
    return Holder{find.text(0), User{find.text(1), find.text(2), find.integer(3) != 0}};
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<Database> database_;  ///< Under mutex_.
};

}  // namespace

Result<std::unique_ptr<TokenStore>> open_sqlite_tokens(const std::string& path) {
  DRUPE_ASSIGN(auto database, Database::open(path));
  return std::make_unique<SqliteTokens>(std::move(database));
}

}  // namespace drupe::api
