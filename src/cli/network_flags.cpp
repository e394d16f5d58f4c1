#include "cli/network_flags.h"

#include "cli/values.h"

namespace drupe::cli {

void NetworkFlags::add_to(FlagSet& flags, bool for_new) {
  flags
      .value(
          "--net", "MODE",
          [this](std::string_view value) -> Status {
            for (const NetworkMode known : {NetworkMode::kNone, NetworkMode::kOpen, NetworkMode::kPolicy})
              if (to_string(known) == value) mode = known;
            if (mode && to_string(*mode) == value) return {};
            return fail(ErrorCode::kInvalidArgument,
                        "takes none, open or policy, not '" + printable(value) + "'");
          },
          "Network: none (default), open (all but private and local addresses), policy (only what --allow "
          "says)")
      .list("--allow", "RULE", allow,
            "Reach this: host, host:port, *.host, ip, ip:port, cidr, [v6], *, @pip, @npm or @apt; implies "
            "--net policy")
      .list("--deny", "RULE", deny, "Never reach this, whatever else is allowed")
      .list(
          "--allow-private", "RANGE", allow_private,
          "Open a private or local range or address that is closed otherwise; a rule is needed all the same")
      .value(
          "--net-quota", "SIZE",
          [this](std::string_view value) -> Status {
            DRUPE_ASSIGN(quota_bytes, parse_size(value));
            return {};
          },
          "Bytes both ways together, e.g. 500m; then every connection is refused");
  if (!for_new) return;
  flags
      .list("-p, --publish", "[ADDR:]PORT:PORT", publish,
            "Lead a TCP port of this machine to one of the sandbox; on loopback unless an address is given")
      .value(
          "--network", "NAME",
          [this](std::string_view value) -> Status {
            if (value != "none") networks.emplace_back(value);  // Docker's word for no network
            return {};
          },
          "Be in this private network ('drupe network create'); may be given several times");
}

bool NetworkFlags::given() const {
  return mode || !allow.empty() || !deny.empty() || !allow_private.empty() || quota_bytes != 0;
}

NetworkOptions NetworkFlags::options() const {
  NetworkOptions out;
  out.mode = mode.value_or(allow.empty() ? NetworkMode::kNone : NetworkMode::kPolicy);
  out.allow = allow;
  out.deny = deny;
  out.allow_private = allow_private;
  out.publish = publish;
  out.quota_bytes = quota_bytes;
  return out;
}

}  // namespace drupe::cli
