// The store in SQLite.
#include <array>
#include <mutex>
#include <unordered_map>

#include "api/json/value.h"
#include "api/json/writer.h"
#include "api/store/migrations.h"
#include "api/store/sqlite.h"
#include "api/store/store.h"

namespace drupe::api {
namespace {

constexpr std::array kPhases{"creating", "live", "destroying", "destroyed", "failed"};

#define DRUPE_SANDBOX_COLUMNS                                                                              \
  "id, owner, name, engine_id, phase, shape, rootfs, vcpu, mem_mib, disk_mib, egress, envs, ssh_pubkeys, " \
  "ingress, auto_pause_s, forked_from, created_ns, running_ns, resumed_ns, destroyed_ns, spawn_us"

Result<std::vector<std::string>> texts_of(const std::string& json) {
  DRUPE_ASSIGN(const Value value, parse_json(json));
  std::vector<std::string> texts;
  for (const Value& item : value.items) texts.push_back(item.text);
  return texts;
}

Result<SandboxRow> read_row(const Statement& row) {
  SandboxRow out;
  out.id = row.text(0);
  out.owner = row.text(1);
  out.name = row.text(2);
  out.engine_id = row.text(3);
  const std::string phase = row.text(4);
  for (std::size_t i = 0; i < kPhases.size(); ++i)
    if (phase == kPhases.at(i)) out.phase = static_cast<Phase>(i);
  out.shape = row.text(5);
  out.rootfs = row.text(6);
  out.vcpu = row.integer(7);
  out.mem_mib = row.integer(8);
  out.disk_mib = row.integer(9);
  if (const auto egress = row.maybe_text(10)) {
    DRUPE_ASSIGN(out.egress, texts_of(*egress));
  }
  DRUPE_ASSIGN(const Value envs, parse_json(row.text(11)));
  for (const auto& [name, value] : envs.members) out.envs[name] = value.text;
  DRUPE_ASSIGN(out.ssh_pubkeys, texts_of(row.text(12)));
  out.ingress = row.integer(13) != 0;
  out.auto_pause_s = row.maybe_integer(14);
  out.forked_from = row.maybe_text(15);
  out.created_ns = row.integer(16);
  out.running_ns = row.maybe_integer(17);
  out.resumed_ns = row.maybe_integer(18);
  out.destroyed_ns = row.maybe_integer(19);
  out.spawn_us = row.maybe_integer(20);
  return out;
}

/// The columns behind id, owner and name, in their order.
void bind_changing(Statement& statement, const SandboxRow& row) {
  std::optional<std::string> egress;
  if (row.egress) egress = to_json(*row.egress);
  statement.bind(row.engine_id)
      .bind(to_string(row.phase))
      .bind(row.shape)
      .bind(row.rootfs)
      .bind(row.vcpu)
      .bind(row.mem_mib)
      .bind(row.disk_mib)
      .bind_optional(egress)
      .bind(to_json(row.envs))
      .bind(to_json(row.ssh_pubkeys))
      .bind(std::int64_t{row.ingress ? 1 : 0})
      .bind_optional(row.auto_pause_s)
      .bind_optional(row.forked_from)
      .bind(row.created_ns)
      .bind_optional(row.running_ns)
      .bind_optional(row.resumed_ns)
      .bind_optional(row.destroyed_ns)
      .bind_optional(row.spawn_us);
}

#define DRUPE_PROCESS_COLUMNS                                                                      \
  "id, sandbox_id, pty, cmd, args, cwd, pid, created_ns, finished_ns, exit_code, signal, failed, " \
  "tree_exited, stdin_closed, seq_reserved"

Result<ProcessRow> read_process(const Statement& row) {
  ProcessRow out;
  out.id = row.text(0);
  out.sandbox_id = row.text(1);
  out.pty = row.integer(2) != 0;
  out.cmd = row.text(3);
  DRUPE_ASSIGN(out.args, texts_of(row.text(4)));
  out.cwd = row.text(5);
  out.pid = row.integer(6);
  out.created_ns = row.integer(7);
  out.finished_ns = row.maybe_integer(8);
  out.exit_code = row.maybe_integer(9);
  out.signal = row.maybe_integer(10);
  out.failed = row.integer(11) != 0;
  out.tree_exited = row.integer(12) != 0;
  out.stdin_closed = row.integer(13) != 0;
  out.seq_reserved = row.integer(14);
  return out;
}

class SqliteStore final : public Store {
 public:
  explicit SqliteStore(std::unique_ptr<Database> database) : database_(std::move(database)) {}

  Result<std::optional<User>> find_user(std::string_view name) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement find, database_->prepare("SELECT id, name, admin FROM users WHERE name = ?"));
    find.bind(name);
    DRUPE_ASSIGN(const bool found, find.step());
    if (!found) return std::nullopt;
    return User{find.text(0), find.text(1), find.integer(2) != 0};
  }

  Status add_user(const User& user) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement add, database_->prepare("INSERT INTO users (id, name, admin) VALUES (?, ?, ?)"));
    return add.bind(user.id).bind(user.name).bind(std::int64_t{user.admin ? 1 : 0}).run();
  }

  Status add_key(const Key& key, std::string_view hash) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement add, database_->prepare("INSERT INTO keys (id, user_id, hash, hint, created_ns) "
                                                   "VALUES (?, ?, ?, ?, ?)"));
    return add.bind(key.id).bind(key.user_id).bind(hash).bind(key.hint).bind(key.created_ns).run();
  }

  Result<std::vector<std::pair<Key, User>>> list_keys() override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(
        Statement list,
        database_->prepare("SELECT keys.id, user_id, hint, created_ns, revoked_ns, name, admin "
                           "FROM keys JOIN users ON users.id = user_id ORDER BY created_ns, keys.id"));
    std::vector<std::pair<Key, User>> out;
    while (true) {
      DRUPE_ASSIGN(const bool more, list.step());
      if (!more) return out;
      out.emplace_back(Key{list.text(0), list.text(1), list.text(2), list.integer(3), list.maybe_integer(4)},
                       User{list.text(1), list.text(5), list.integer(6) != 0});
    }
  }

  Result<bool> revoke_key(std::string_view id, std::int64_t now_ns) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement revoke,
                 database_->prepare("UPDATE keys SET revoked_ns = ? WHERE id = ? AND revoked_ns IS NULL"));
    DRUPE_TRY(revoke.bind(now_ns).bind(id).run());
    known_.clear();  // the number does not change by what this connection does
    return database_->changes() != 0;
  }

  Result<std::optional<User>> user_of_key(std::string_view hash) override {
    const std::scoped_lock lock(mutex_);
    // Every process that changes a key changes the number, so what is remembered is never stale.
    DRUPE_ASSIGN(const std::int64_t version, database_->data_version());
    if (version != version_) known_.clear();
    version_ = version;
    if (const auto known = known_.find(std::string(hash)); known != known_.end()) return known->second;
    DRUPE_ASSIGN(Statement find,
                 database_->prepare("SELECT users.id, name, admin FROM keys JOIN users ON users.id = user_id "
                                    "WHERE hash = ? AND revoked_ns IS NULL"));
    find.bind(hash);
    DRUPE_ASSIGN(const bool found, find.step());
    if (!found) return std::nullopt;
    User user{find.text(0), find.text(1), find.integer(2) != 0};
    known_[std::string(hash)] = user;
    return user;
  }

  Status add_sandbox(const SandboxRow& row) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement add, database_->prepare("INSERT INTO sandboxes (" DRUPE_SANDBOX_COLUMNS ") VALUES "
                                                   "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
    add.bind(row.id).bind(row.owner).bind(row.name);
    bind_changing(add, row);
    return add.run();
  }

  Status update_sandbox(const SandboxRow& row) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(
        Statement update,
        database_->prepare(
            "UPDATE sandboxes SET engine_id = ?, phase = ?, shape = ?, rootfs = ?, vcpu = ?, mem_mib = ?, "
            "disk_mib = ?, egress = ?, envs = ?, ssh_pubkeys = ?, ingress = ?, auto_pause_s = ?, "
            "forked_from = ?, created_ns = ?, running_ns = ?, resumed_ns = ?, destroyed_ns = ?, "
            "spawn_us = ? WHERE id = ?"));
    bind_changing(update, row);
    DRUPE_TRY(update.bind(row.id).run());
    if (database_->changes() == 0) return fail(ErrorCode::kNotFound, "sandbox not found");
    return {};
  }

  Status drop_sandbox(std::string_view id) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement drop, database_->prepare("DELETE FROM sandboxes WHERE id = ?"));
    return drop.bind(id).run();
  }

  Result<std::optional<SandboxRow>> find_sandbox(std::string_view id) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement find,
                 database_->prepare("SELECT " DRUPE_SANDBOX_COLUMNS " FROM sandboxes WHERE id = ?"));
    find.bind(id);
    DRUPE_ASSIGN(const bool found, find.step());
    if (!found) return std::nullopt;
    return read_row(find);
  }

  Result<std::vector<SandboxRow>> list_sandboxes(std::string_view owner) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement list, database_->prepare("SELECT " DRUPE_SANDBOX_COLUMNS
                                                    " FROM sandboxes WHERE ?1 = '' OR owner = ?1 "
                                                    "ORDER BY created_ns DESC, id DESC"));
    list.bind(owner);
    std::vector<SandboxRow> rows;
    while (true) {
      DRUPE_ASSIGN(const bool more, list.step());
      if (!more) return rows;
      DRUPE_ASSIGN(SandboxRow row, read_row(list));
      rows.push_back(std::move(row));
    }
  }

  Status add_network(const NetworkRow& row) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(
        Statement add,
        database_->prepare("INSERT INTO networks (id, owner, name, created_ns) VALUES (?, ?, ?, ?)"));
    return add.bind(row.id).bind(row.owner).bind(row.name).bind(row.created_ns).run();
  }

  Result<std::vector<NetworkRow>> list_networks(std::string_view owner) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement list, database_->prepare("SELECT id, owner, name, created_ns FROM networks "
                                                    "WHERE owner = ? ORDER BY created_ns DESC, id DESC"));
    list.bind(owner);
    std::vector<NetworkRow> rows;
    while (true) {
      DRUPE_ASSIGN(const bool more, list.step());
      if (!more) return rows;
      rows.push_back({list.text(0), list.text(1), list.text(2), list.integer(3)});
    }
  }

  Result<std::optional<NetworkRow>> find_network(std::string_view id) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement find,
                 database_->prepare("SELECT id, owner, name, created_ns FROM networks WHERE id = ?"));
    find.bind(id);
    DRUPE_ASSIGN(const bool found, find.step());
    if (!found) return std::nullopt;
    return NetworkRow{find.text(0), find.text(1), find.text(2), find.integer(3)};
  }

  Status drop_network(std::string_view id) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement drop, database_->prepare("DELETE FROM networks WHERE id = ?"));
    return drop.bind(id).run();
  }

  Status purge_sandboxes(std::int64_t ended_before_ns) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement purge,
                 database_->prepare("DELETE FROM sandboxes WHERE phase IN ('destroyed', 'failed') "
                                    "AND coalesce(destroyed_ns, created_ns) < ?"));
    return purge.bind(ended_before_ns).run();
  }

  Status forget_overwritten() override {
    const std::scoped_lock lock(mutex_);
    return database_->execute("PRAGMA wal_checkpoint(TRUNCATE)");
  }

  Status save_process(const ProcessRow& row) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement save, database_->prepare("INSERT OR REPLACE INTO processes (" DRUPE_PROCESS_COLUMNS
                                                    ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
    return save.bind(row.id)
        .bind(row.sandbox_id)
        .bind(std::int64_t{row.pty})
        .bind(row.cmd)
        .bind(to_json(row.args))
        .bind(row.cwd)
        .bind(row.pid)
        .bind(row.created_ns)
        .bind_optional(row.finished_ns)
        .bind_optional(row.exit_code)
        .bind_optional(row.signal)
        .bind(std::int64_t{row.failed})
        .bind(std::int64_t{row.tree_exited})
        .bind(std::int64_t{row.stdin_closed})
        .bind(row.seq_reserved)
        .run();
  }

  Result<std::vector<ProcessRow>> list_processes(std::string_view sandbox_id) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement list,
                 database_->prepare("SELECT " DRUPE_PROCESS_COLUMNS
                                    " FROM processes WHERE sandbox_id = ? ORDER BY created_ns, id"));
    list.bind(sandbox_id);
    std::vector<ProcessRow> rows;
    while (true) {
      DRUPE_ASSIGN(const bool more, list.step());
      if (!more) return rows;
      DRUPE_ASSIGN(ProcessRow row, read_process(list));
      rows.push_back(std::move(row));
    }
  }

  Status drop_process(std::string_view id) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement drop, database_->prepare("DELETE FROM processes WHERE id = ?"));
    return drop.bind(id).run();
  }

  Status drop_processes(std::string_view sandbox_id) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement drop, database_->prepare("DELETE FROM processes WHERE sandbox_id = ?"));
    return drop.bind(sandbox_id).run();
  }

 private:
  std::mutex mutex_;
  // All below under mutex_.
  std::unique_ptr<Database> database_;
  std::int64_t version_ = -1;
  std::unordered_map<std::string, User> known_;  ///< By hash; of keys that are in force.
};

}  // namespace

std::string_view to_string(Phase phase) {
  return kPhases.at(static_cast<std::size_t>(phase));
}

Result<std::unique_ptr<Store>> open_sqlite_store(const std::string& path) {
  DRUPE_ASSIGN(auto database, Database::open(path));
  DRUPE_TRY(migrate(*database));
  return std::make_unique<SqliteStore>(std::move(database));
}

}  // namespace drupe::api
