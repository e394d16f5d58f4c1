// What druped itself knows: users, their keys, and what it adds to the engine's sandboxes. Another database
// can stand behind this interface when several machines form one service; the state of machines is never in
// it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace drupe::api {

struct User {
  std::string id;    ///< "usr_" and 26 characters.
  std::string name;  ///< Unique; what an operator calls them.
  bool admin = false;
};

struct Key {
  std::string id;  ///< "key_" and 26 characters.
  std::string user_id;
  std::string hint;  ///< "skp_ab...wxyz": enough to recognise it by.
  std::int64_t created_ns = 0;
  std::optional<std::int64_t> revoked_ns;
};

/// What is kept of a sandbox beside its machine. Its state while it lives is the engine's.
enum class Phase : std::uint8_t { kCreating, kLive, kDestroying, kDestroyed, kFailed };
[[nodiscard]] std::string_view to_string(Phase phase);

struct SandboxRow {
  std::string id;         ///< "sb-" and 26 characters; also its name in the engine.
  std::string engine_id;  ///< Empty until the engine has made it.
  std::string owner;      ///< User's id.
  std::string name;
  Phase phase = Phase::kCreating;
  std::string shape, rootfs;
  std::int64_t vcpu = 1, mem_mib = 0, disk_mib = 0;
  std::optional<std::vector<std::string>> egress;  ///< As given; absent: everything.
  std::map<std::string, std::string> envs;         ///< Secrets.
  std::vector<std::string> ssh_pubkeys;
  bool ingress = false;
  std::optional<std::int64_t> auto_pause_s;
  std::optional<std::string> forked_from;
  std::int64_t created_ns = 0;
  std::optional<std::int64_t> running_ns, resumed_ns, destroyed_ns;
  std::optional<std::int64_t> spawn_us;
};

/// A managed process, as far as it outlives druped.
struct ProcessRow {
  std::string sandbox_id;
  std::string id;  ///< "proc_" and 26 characters; also its name in the guest.
  bool pty = false;
  std::string cmd;
  std::vector<std::string> args;
  std::string cwd;
  std::int64_t pid = 0;
  std::int64_t created_ns = 0;
  std::optional<std::int64_t> finished_ns;
  std::optional<std::int64_t> exit_code;
  std::optional<std::int64_t> signal;
  bool failed = false;       ///< It is lost: how it ended is not known.
  bool tree_exited = false;  ///< Nothing that it started is left.
  bool stdin_closed = false;
  std::int64_t seq_reserved = 0;  ///< Sequence numbers up to this may have been given out.
};

/// A private network. Who is in it is the engine's.
struct NetworkRow {
  std::string id;  ///< "net-" and 26 characters; also its name in the engine.
  std::string owner;
  std::string name;  ///< Unique among the owner's.
  std::int64_t created_ns = 0;
};

/// Callable from any thread. Names are unique among an owner's sandboxes that are being created or live.
class Store {
 public:
  virtual ~Store() = default;

  // Users and keys. A key's text is never stored, only its hash.
  virtual Result<std::optional<User>> find_user(std::string_view name) = 0;
  virtual Status add_user(const User& user) = 0;
  virtual Status add_key(const Key& key, std::string_view hash) = 0;
  virtual Result<std::vector<std::pair<Key, User>>> list_keys() = 0;
  /// False when there is no such key, or it was revoked before.
  virtual Result<bool> revoke_key(std::string_view id, std::int64_t now_ns) = 0;
  /// The owner of the key with this hash, unless it was revoked: in force for the next call everywhere.
  virtual Result<std::optional<User>> user_of_key(std::string_view hash) = 0;

  // Sandboxes.
  /// kAlreadyExists when the owner has a live one of that name.
  virtual Status add_sandbox(const SandboxRow& row) = 0;
  /// Replaces everything but id, owner and name.
  virtual Status update_sandbox(const SandboxRow& row) = 0;
  virtual Status drop_sandbox(std::string_view id) = 0;
  virtual Result<std::optional<SandboxRow>> find_sandbox(std::string_view id) = 0;
  /// Newest first, by creation and id; of one owner, or of all when it is empty.
  virtual Result<std::vector<SandboxRow>> list_sandboxes(std::string_view owner) = 0;
  /// Removes the rows of sandboxes that ended before that moment.
  virtual Status purge_sandboxes(std::int64_t ended_before_ns) = 0;
  /// What was overwritten is no longer in the store's files.
  virtual Status forget_overwritten() = 0;

  // Private networks.
  /// kAlreadyExists when the owner has one of that name.
  virtual Status add_network(const NetworkRow& row) = 0;
  /// Newest first.
  virtual Result<std::vector<NetworkRow>> list_networks(std::string_view owner) = 0;
  virtual Result<std::optional<NetworkRow>> find_network(std::string_view id) = 0;
  virtual Status drop_network(std::string_view id) = 0;

  // Managed processes.
  /// Adds or replaces.
  virtual Status save_process(const ProcessRow& row) = 0;
  /// Of one sandbox, oldest first.
  virtual Result<std::vector<ProcessRow>> list_processes(std::string_view sandbox_id) = 0;
  virtual Status drop_process(std::string_view id) = 0;
  virtual Status drop_processes(std::string_view sandbox_id) = 0;
};

/// In a file. Several processes may have it open.
Result<std::unique_ptr<Store>> open_sqlite_store(const std::string& path);

}  // namespace drupe::api
