// SQLite as values: statements that are bound and read in order, transactions that roll back by themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace drupe::api {

/// Borrowed from its Database, which keeps it prepared; reset when destroyed.
class Statement {
 public:
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  Statement(Statement&& other) noexcept
      : statement_(std::exchange(other.statement_, nullptr)), next_(other.next_) {}
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // The next parameter.
  Statement& bind(std::int64_t value);
  Statement& bind(std::string_view value);
  Statement& bind_null();
  Statement& bind_optional(const std::optional<std::string>& value) {
    return value ? bind(std::string_view(*value)) : bind_null();
  }
  Statement& bind_optional(const std::optional<std::int64_t>& value) {
    return value ? bind(*value) : bind_null();
  }

  /// Whether there is a row. kAlreadyExists when a uniqueness rule was broken.
  Result<bool> step();
  /// Runs a statement that gives no rows.
  Status run();

  // Columns of the current row, from 0.
  [[nodiscard]] std::int64_t integer(int column) const;
  [[nodiscard]] std::string text(int column) const;
  [[nodiscard]] std::optional<std::int64_t> maybe_integer(int column) const;
  [[nodiscard]] std::optional<std::string> maybe_text(int column) const;

 private:
  sqlite3_stmt* statement_;
  int next_ = 1;
};

/// One connection; used by one thread at a time.
class Database {
 public:
  /// Creates the file (0600) when it is missing. WAL; a commit survives the end of this process.
  static Result<std::unique_ptr<Database>> open(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  /// `sql` is a literal of this program: it is what prepared statements are found by.
  Result<Statement> prepare(std::string_view sql);
  /// Any number of statements without parameters.
  Status execute(const std::string& sql);
  /// Rows that the last statement changed.
  [[nodiscard]] std::int64_t changes() const;
  /// Another value when another connection has changed something.
  Result<std::int64_t> data_version();

 private:
  explicit Database(sqlite3* handle) : handle_(handle) {}
  sqlite3* handle_;
  std::unordered_map<std::string, sqlite3_stmt*> statements_;
};

/// Rolled back unless commit() was called.
class Transaction {
 public:
  static Result<Transaction> begin(Database& database);
  Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Status commit();

 private:
  explicit Transaction(Database& database) : database_(&database) {}
  Database* database_;
};

}  // namespace drupe::api
