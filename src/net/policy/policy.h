// The egress policy of one sandbox: what it decides about names, connections and open flows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/policy/closed.h"
#include "net/policy/rule_set.h"
#include "net/policy/spec.h"

namespace drupe::net {

enum class Protocol : std::uint8_t { kTcp, kUdp };
[[nodiscard]] std::string_view to_string(Protocol protocol);

struct Destination {
  Protocol protocol = Protocol::kTcp;
  IpAddress address;
  std::uint16_t port = 0;
};

/// What must be true of the name that the client itself says (TLS server name, HTTP Host), from weak to
/// strong.
enum class NameCheck : std::uint8_t {
  kNone,       ///< Nothing: allowed by address.
  kNotDenied,  ///< If it says one, no deny rule may name it. Allowed by address, so this is an obstacle to
               ///< honest clients only.
  kIfSpoken,   ///< If it speaks TLS or HTTP, the name must be one of `names`; other protocols pass.
  kRequired,   ///< It must speak TLS or HTTP and say one of `names`.
};

/// The answer to one question. `rule` is what a log shows: "allow example.com:443 (@pip)", "deny
/// *.bad.example", "closed: private 10.0.0.0/8", "no rule", "mode none", each after "ceiling: " when the
/// ceiling decided.
struct Decision {
  bool allowed = false;
  std::string rule;
  NameCheck check = NameCheck::kNone;
  /// For kIfSpoken and kRequired: the pinned names that are allowed on this port; never empty then.
  std::vector<std::string> names;
};

/// What is known of an open flow when the policy changes.
struct FlowFacts {
  Destination destination;
  NameCheck check = NameCheck::kNone;  ///< Of the decision that admitted it.
  std::vector<std::string> names;      ///< Names that were pinned to the address at that time.
  std::string verified;  ///< Name that the client said and that was accepted last; may be empty.
};

/// An immutable snapshot; replacing the policy means to compile another one. Shared, because decisions,
/// the resolver and flows of one sandbox hold it at once; any thread may ask.
///
/// Order: closed ranges, then the ceiling, then deny rules, then the mode and allow rules.
/// A rule by name without a port means every port, and the client must say the name in TLS or HTTP. A rule
/// with a port other than 80 and 443 also lets other protocols and UDP pass on that port. On 80 and 443 a
/// name rule admits TLS and HTTP over TCP only (QUIC hides its name).
class Policy {
 public:
  /// kInvalidArgument or kLimit names the rule and the column.
  static Result<std::shared_ptr<const Policy>> compile(const PolicySpec& spec, const HostFacts& host,
                                                       std::uint64_t generation);

  /// May this name be looked up? `name` as the client spelled it.
  [[nodiscard]] Decision decide_name(std::string_view name) const;
  /// May this connection be opened, and under which condition? `pinned`: normalised names that the resolver
  /// has answered this address for (Pins::names_at()).
  [[nodiscard]] Decision decide(const Destination& to, std::span<const std::string> pinned) const;
  /// Does `name` (as the client says it) meet the condition of `decision`, made for `port`?
  [[nodiscard]] bool accepts_name(const Decision& decision, std::string_view name, std::uint16_t port) const;
  /// The rule that admits a verified name on `port`, for the log; "no rule" when none does any more.
  [[nodiscard]] std::string rule_for(std::string_view name, std::uint16_t port) const;
  /// Would the flow be allowed as it is? Pins that ran out since do not matter. `names` and `check` of the
  /// answer are what an inspector that is still reading has to demand from now on.
  [[nodiscard]] Decision recheck(const FlowFacts& flow) const;
  /// Why an answer with this address is dropped; nullopt when it may be given to the guest.
  [[nodiscard]] std::optional<std::string> why_closed(const IpAddress& address) const;

  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  [[nodiscard]] Mode mode() const { return layers_.front().mode; }
  [[nodiscard]] bool has_ipv6() const { return has_ipv6_; }

 private:
  /// The rules, or the ceiling: they decide alike, and both must agree.
  struct Layer {
    Mode mode = Mode::kNone;
    RuleSet allow, deny;
    ClosedRanges closed;
    std::string prefix;  ///< "" or "ceiling: "
  };
  Policy() = default;
  static Result<Layer> compile_layer(const RuleTexts& rules, const HostFacts& host, std::string prefix);
  [[nodiscard]] const Rule* denied_address(const Layer& layer, const Destination& to) const;
  [[nodiscard]] static const Rule* denied_name(const Layer& layer, std::string_view name, std::uint16_t port);
  [[nodiscard]] static Decision name_in(const Layer& layer, std::string_view name);
  [[nodiscard]] Decision connection_in(const Layer& layer, const Destination& to,
                                       std::span<const std::string> pinned) const;
  [[nodiscard]] static Decision by_names(const Layer& layer, const Destination& to,
                                         std::span<const std::string> pinned);
  [[nodiscard]] static Decision both(Decision a, Decision b);

  std::vector<Layer> layers_;  ///< The rules; the ceiling if there is one.
  std::vector<Cidr> nat64_;
  std::uint64_t generation_ = 0;
  bool has_ipv6_ = false;
};

}  // namespace drupe::net
