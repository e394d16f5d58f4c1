// What each version of druped added to its store, as it was released, with a row of everything. These texts
// are never changed; a version that is added to migrations.cpp is added here.
#pragma once

#include <array>
#include <string_view>

namespace drupe::api::testing {

inline constexpr std::array<std::string_view, 5> kOldFormats{
    // 1
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
INSERT INTO users VALUES ('usr_alice', 'alice', 1);
INSERT INTO keys VALUES ('key_1', 'usr_alice', 'hash-1', 'skp_ab...wxyz', 1700000000000000000, NULL);
INSERT INTO keys VALUES ('key_2', 'usr_alice', 'hash-2', 'skp_cd...stuv', 1700000000000000000, 1700000001000000000);
INSERT INTO sandboxes VALUES ('sb-old', 'engine-id', 'usr_alice', 'worker', 'live', 's-1vcpu-1gb', 'devbox:1', 1, 1024, 10240,
  '["api.example.com:443"]', '{"MODE":"fast"}', '["ssh-ed25519 AAAA"]', 1, 180, NULL, 1700000000000000000,
  1700000000500000000, NULL, NULL, 187400);
)sql",
    // 2
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
INSERT INTO processes VALUES ('proc_1', 'sb-old', 0, 'sh', '["-c","sleep 1"]', '', 42, 1700000000600000000, NULL, NULL, NULL, 0, 0, 0, 16);
)sql",
    // 3
    R"sql(
CREATE TABLE networks (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL REFERENCES users (id),
  name TEXT NOT NULL,
  created_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX network_names ON networks (owner, name);
INSERT INTO networks VALUES ('net-1', 'usr_alice', 'back', 1700000000700000000);
)sql",
    // 4
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
INSERT INTO templates VALUES ('tpl_1', 'usr_alice', 'tools', 'devbox:1', 'FROM devbox:1', 'ready', 'abc', 4096, 1700000000800000000, 1700000000900000000, 0, '');
)sql",
    // 5
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
INSERT INTO tokens VALUES ('sb-old', 'token-hash', 'skp_sb_...wxyz', 1700000000900000000, NULL);
INSERT INTO quotas VALUES ('usr_alice', 20, NULL, 4096, NULL);
)sql",
};

}  // namespace drupe::api::testing
