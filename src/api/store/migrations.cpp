#include "api/store/migrations.h"

#include <array>

namespace drupe::api {
namespace {

// PRAGMA user_version is how many of these were applied.
constexpr std::array kSteps{
    // 1: users, keys, sandboxes.
    R"sql(
CREATE TABLE users (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  admin INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE keys (
  id TEXT PRIMARY KEY,
  user_id TEXT NOT NULL REFERENCES users (id),
  hash TEXT NOT NULL UNIQUE,
  hint TEXT NOT NULL,
  created_ns INTEGER NOT NULL,
  revoked_ns INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE sandboxes (
  id TEXT PRIMARY KEY,
  engine_id TEXT NOT NULL,
  owner TEXT NOT NULL REFERENCES users (id),
  name TEXT NOT NULL,
  phase TEXT NOT NULL CHECK (phase IN ('creating', 'live', 'destroying', 'destroyed', 'failed')),
  shape TEXT NOT NULL,
  rootfs TEXT NOT NULL,
  vcpu INTEGER NOT NULL,
  mem_mib INTEGER NOT NULL,
  disk_mib INTEGER NOT NULL,
  egress TEXT,
  envs TEXT NOT NULL,
  ssh_pubkeys TEXT NOT NULL,
  ingress INTEGER NOT NULL,
  auto_pause_s INTEGER,
  forked_from TEXT,
  created_ns INTEGER NOT NULL,
  running_ns INTEGER,
  resumed_ns INTEGER,
  destroyed_ns INTEGER,
  spawn_us INTEGER
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX live_names ON sandboxes (owner, name) WHERE phase IN ('creating', 'live');
CREATE INDEX newest ON sandboxes (owner, created_ns DESC, id DESC);
)sql",
    // 2: managed processes.
    R"sql(
CREATE TABLE processes (
  id TEXT PRIMARY KEY,
  sandbox_id TEXT NOT NULL,
  pty INTEGER NOT NULL,
  cmd TEXT NOT NULL,
  args TEXT NOT NULL,
  cwd TEXT NOT NULL,
  pid INTEGER NOT NULL,
  created_ns INTEGER NOT NULL,
  finished_ns INTEGER,
  exit_code INTEGER,
  signal INTEGER,
  failed INTEGER NOT NULL,
  tree_exited INTEGER NOT NULL,
  stdin_closed INTEGER NOT NULL,
  seq_reserved INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX processes_of ON processes (sandbox_id, created_ns, id);
)sql",
    // 3: private networks.
    R"sql(
CREATE TABLE networks (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL REFERENCES users (id),
  name TEXT NOT NULL,
  created_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX network_names ON networks (owner, name);
)sql",
    // 4: templates.
    R"sql(
CREATE TABLE templates (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL REFERENCES users (id),
  name TEXT NOT NULL,
  base TEXT NOT NULL,
  dockerfile TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('pending', 'building', 'ready', 'failed')),
  image_id TEXT NOT NULL,
  ext4_size INTEGER NOT NULL,
  created_ns INTEGER NOT NULL,
  built_ns INTEGER,
  deleted INTEGER NOT NULL,
  error TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX template_names ON templates (owner, name) WHERE deleted = 0 AND status <> 'failed';
CREATE INDEX template_images ON templates (image_id);
)sql",
    // 5: delegated tokens; what each user may have.
    R"sql(
CREATE TABLE tokens (
  sandbox_id TEXT PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  hint TEXT NOT NULL,
  created_ns INTEGER NOT NULL,
  rotated_ns INTEGER
) STRICT, WITHOUT ROWID;
CREATE TRIGGER tokens_end AFTER DELETE ON sandboxes BEGIN
  DELETE FROM tokens WHERE sandbox_id = OLD.id;
END;
CREATE TABLE quotas (
  user_id TEXT PRIMARY KEY REFERENCES users (id),
  sandboxes INTEGER,
  vcpu INTEGER,
  mem_mib INTEGER,
  disk_mib INTEGER
) STRICT, WITHOUT ROWID;
)sql",
};

}  // namespace

int newest_version() {
  return static_cast<int>(kSteps.size());
}

Status migrate(Database& database) {
  while (true) {
    DRUPE_ASSIGN(Transaction transaction, Transaction::begin(database));
    std::int64_t version = 0;
    {
      DRUPE_ASSIGN(Statement statement, database.prepare("PRAGMA user_version"));
      DRUPE_TRY(statement.step());
      version = statement.integer(0);
    }
    if (version > newest_version())
      return fail(ErrorCode::kUnsupported, "The accounts' store was written by a later version of druped",
                  "Install that version again, or give druped another home.");
    if (version == newest_version()) return {};
    DRUPE_TRY(database.execute(kSteps.at(static_cast<std::size_t>(version))));
    DRUPE_TRY(database.execute("PRAGMA user_version = " + std::to_string(version + 1)));
    DRUPE_TRY(transaction.commit());
  }
}

}  // namespace drupe::api
