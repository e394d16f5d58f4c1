#include "api/store/sqlite.h"

#include <cerrno>

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "base/files.h"

namespace drupe::api {
namespace {

constexpr int kBusyMs = 10'000;

std::unexpected<Error> failed(sqlite3* handle, std::string_view what) {
  const int code = sqlite3_extended_errcode(handle);
  const ErrorCode kind = code == SQLITE_CONSTRAINT_UNIQUE || code == SQLITE_CONSTRAINT_PRIMARYKEY
                             ? ErrorCode::kAlreadyExists
                         : (code & 0xFF) == SQLITE_FULL ? ErrorCode::kLimit
                                                        : ErrorCode::kHost;
  return fail(kind, std::string(what) + ": " + sqlite3_errmsg(handle));
}

}  // namespace

Statement::~Statement() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Statement& Statement::bind(std::int64_t value) {
  sqlite3_bind_int64(statement_, next_++, value);
  return *this;
}
Statement& Statement::bind(std::string_view value) {
  sqlite3_bind_text64(statement_, next_++, value.data(), value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  return *this;
}
Statement& Statement::bind_null() {
  sqlite3_bind_null(statement_, next_++);
  return *this;
}

Result<bool> Statement::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return failed(sqlite3_db_handle(statement_), "The accounts' store failed");
}

Status Statement::run() {
  DRUPE_TRY(step());
  return {};
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}
std::string Statement::text(int column) const {
  const auto* const bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return bytes == nullptr
             ? std::string()
             : std::string(bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)));
}
std::optional<std::int64_t> Statement::maybe_integer(int column) const {
  if (sqlite3_column_type(statement_, column) == SQLITE_NULL) return std::nullopt;
  return integer(column);
}
std::optional<std::string> Statement::maybe_text(int column) const {
  if (sqlite3_column_type(statement_, column) == SQLITE_NULL) return std::nullopt;
  return text(column);
}

namespace {

/// Made here first, so that it never has another mode. SQLite gives its companions the same. One that is
/// there is not opened: closing any descriptor of a file drops this process's locks on it, those of its other
/// connections, too.
Status make_file(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) == 0) {
    if (S_ISREG(info.st_mode)) return {};
    return fail(ErrorCode::kIntegrity, path + " is no regular file");
  }
  const auto made = open_at(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (!made && made.error().sys_errno != EEXIST) return std::unexpected(made.error());
  return {};
}

}  // namespace

Result<std::unique_ptr<Database>> Database::open(const std::string& path) {
  DRUPE_TRY(make_file(path));
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(
      path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, nullptr);
  std::unique_ptr<Database> database(new Database(handle));
  if (code != SQLITE_OK) return failed(handle, "Opening " + path + " failed");
  sqlite3_busy_timeout(handle, kBusyMs);
  DRUPE_TRY(
      database->execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;"
                        "PRAGMA trusted_schema = OFF; PRAGMA secure_delete = ON;"));
  return database;
}

Database::~Database() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(handle_);
}

Result<Statement> Database::prepare(std::string_view sql) {
  std::string text(sql);
  const auto found = statements_.find(text);
  if (found != statements_.end()) return Statement(found->second);
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v3(handle_, text.c_str(), static_cast<int>(text.size()) + 1, SQLITE_PREPARE_PERSISTENT,
                         &statement, nullptr) != SQLITE_OK)
    return failed(handle_, "The accounts' store does not understand this program");
  statements_[std::move(text)] = statement;
  return Statement(statement);
}

Status Database::execute(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
    return failed(handle_, "The accounts' store failed");
  return {};
}

std::int64_t Database::changes() const {
  return sqlite3_changes64(handle_);
}

Result<std::int64_t> Database::data_version() {
  DRUPE_ASSIGN(Statement statement, prepare("PRAGMA data_version"));
  DRUPE_TRY(statement.step());
  return statement.integer(0);
}

Result<Transaction> Transaction::begin(Database& database) {
  DRUPE_TRY(database.execute("BEGIN IMMEDIATE"));
  return Transaction(database);
}

Transaction::~Transaction() {
  if (database_ != nullptr) static_cast<void>(database_->execute("ROLLBACK"));
}

Status Transaction::commit() {
  DRUPE_TRY(database_->execute("COMMIT"));
  database_ = nullptr;
  return {};
}

}  // namespace drupe::api
