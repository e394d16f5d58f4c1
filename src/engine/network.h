// What a sandbox may reach, from words to what its network process is given.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "net/policy/presets.h"
#include "shim/record.h"
#include "shim/spec.h"

namespace drupe {

/// Expands presets, reads publications and compiles the policy, so that every mistake is found before
/// anything is made: kInvalidArgument with the rule and the column.
Result<NetworkRecord> make_network(const NetworkOptions& options,
                                   const std::optional<NetworkOptions>& ceiling,
                                   const net::PresetSource& source);

/// "[address:]hostport:guestport", an IPv6 address in brackets; without an address it is loopback.
Result<net::Publication> parse_publication(std::string_view text);

/// The policy's bytes for the network process. Precondition: make_network() accepted both.
[[nodiscard]] std::string encode_policy(const NetworkRecord& network,
                                        const std::optional<NetworkOptions>& ceiling);

/// What the host is like now: $DRUPE_RESOLVERS ("address[:port]", comma between them), else
/// /etc/resolv.conf; and whether it has a route to global IPv6 addresses.
[[nodiscard]] NetSpec host_net_spec();

}  // namespace drupe
