// Joining a guest, its machine's network card and its network process.
#pragma once

#include <string>

#include "hypervisor/hypervisor.h"
#include "shim/guest_link.h"
#include "shim/network.h"
#include "shim/record.h"
#include "shim/spec.h"

namespace drupe {

/// Locally administered, different for each machine id; 6 bytes.
[[nodiscard]] std::string mac_of(const std::string& machine_id);

/// A private network is one, too.
[[nodiscard]] inline bool has_network(const SandboxRecord& record, const NetSpec& spec) {
  return record.network.mode != NetworkMode::kNone || !spec.networks.empty();
}

/// `flows`: open connections of an earlier life of the guest, which are reset.
[[nodiscard]] net::NetConfig net_config(const SandboxRecord& record, const NetSpec& spec, std::string flows);

/// Waits for the policy, then raises the card's link and has the guest use it. `names`: its /etc/resolv.conf
/// is written.
Status raise_link(Machine& machine, GuestLink& link, Network& network, const SandboxRecord& record,
                  bool names, Deadline deadline);
/// Afterwards the guest has no route, and connecting fails at once.
Status lower_link(Machine& machine, GuestLink& link, Deadline deadline);

}  // namespace drupe
