// Private networks of the API: rows of the store over networks of the engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/service/engines.h"
#include "api/service/sandboxes.h"
#include "api/store/store.h"
#include "base/result.h"

namespace drupe::api {

struct NetworkMember {
  std::string sandbox_id, name;
  State state = State::kRunning;
  std::string ip;  ///< In this network.
};

/// A network as a client sees it.
struct NetworkView {
  NetworkRow row;
  std::vector<NetworkMember> members;
};

/// Callable from any thread; operations block. What is not the caller's is kNotFound. A network that the
/// engine does not have is one that a killed process was making: it is made when somebody joins it.
class Networks {
 public:
  Networks(Store& store, Engines& engines, Sandboxes& sandboxes)
      : store_(store), engines_(engines), sandboxes_(sandboxes) {}

  /// kAlreadyExists for a name that the owner has given already.
  Result<NetworkView> create(const std::string& owner, const std::string& name);
  /// Newest first.
  Result<std::vector<NetworkView>> list(const std::string& owner);
  Result<NetworkView> find(const std::string& owner, const std::string& id_or_name);
  /// kInvalidState while there are members.
  Status remove(const std::string& owner, const std::string& id_or_name);

  /// In force for all members when it returns. A member stays one.
  Status attach(const std::string& owner, const std::string& sandbox, const std::string& network);
  /// kNotFound when the sandbox is not in it.
  Status detach(const std::string& owner, const std::string& sandbox, const std::string& network);

  Result<NetworkRow> own_row(const std::string& owner, const std::string& id_or_name);

 private:
  Result<std::vector<NetworkInfo>> engine_networks();
  Result<std::vector<NetworkView>> look(std::vector<NetworkRow> rows);

  Store& store_;
  Engines& engines_;
  Sandboxes& sandboxes_;
};

/// Makes the machine of `sandbox` a member under its own name, whether it runs or not, and the engine's
/// network when that is missing.
Status join_network(Engine& engine, const NetworkRow& network, const SandboxRow& sandbox);
/// The machine of `sandbox` is a member of some of its owner's networks under no name, as a fork's child is:
/// gives it its own.
Status name_in_networks(Engine& engine, Store& store, const SandboxRow& sandbox);

}  // namespace drupe::api
