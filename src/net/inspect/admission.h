// One flow from the guest as the policy sees it: decided at its beginning, read while it says names, judged
// again when the policy changes, and logged.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "net/inspect/name_inspector.h"
#include "net/log/egress_log.h"
#include "net/policy/pins.h"
#include "net/policy/policy.h"

namespace drupe::net {

class Admission;

struct Admitted {
  Decision decision;
  std::unique_ptr<Admission> flow;  ///< Null when refused.
};

/// Decides about a new flow and logs it. `log` must live longer than the flow.
[[nodiscard]] Admitted admit(std::shared_ptr<const Policy> policy, Pins& pins, EgressLog& log,
                             const Destination& to, NameInspector::Options options, Time now);

/// An allowed flow. One thread; not copied or moved, because its inspector calls back into it.
class Admission {
 public:
  /// For admit().
  Admission(std::shared_ptr<const Policy> policy, EgressLog& log, const Destination& to, Decision decision,
            std::vector<std::string> pinned, NameInspector::Options options);
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  /// The guest's bytes, each once, in order; see NameInspector. For TCP only.
  [[nodiscard]] Inspection on_client(ByteView bytes, Time now);
  /// The server's bytes from the first on, while wants_server().
  [[nodiscard]] Inspection on_server(ByteView bytes, Time now);
  [[nodiscard]] bool wants_server() const { return inspector_.wants_server(); }
  /// Nothing more is read: bytes may pass unseen. True from the beginning for flows without a check.
  [[nodiscard]] bool opaque() const { return inspector_.opaque(); }
  /// The server's bytes may reach the guest before the guest has said anything: not where a name is required,
  /// but where protocols pass in which the server speaks first.
  [[nodiscard]] bool server_may_speak_first() const { return check_ != NameCheck::kRequired; }

  /// False: the new policy does not allow the flow; it is logged, and the caller ends it. True: the policy
  /// judges everything that the flow says from now on.
  [[nodiscard]] bool replace_policy(std::shared_ptr<const Policy> policy, Time now);

  [[nodiscard]] const Destination& destination() const { return to_; }
  /// Name that the client said last and that was accepted; normalised; empty when it said none.
  [[nodiscard]] const std::string& verified() const { return verified_; }

 private:
  [[nodiscard]] bool judge(std::string_view name);
  Inspection checked(Inspection inspection, Time now);
  void note(bool allowed, LogKind kind, const std::string& name, std::string detail, std::string rule,
            Time now);

  std::shared_ptr<const Policy> policy_;
  EgressLog& log_;
  Destination to_;
  Decision decision_;
  NameCheck check_;  ///< What inspector_ demands: never less than when the flow began.
  std::vector<std::string> pinned_;
  std::string verified_;
  std::string said_;  ///< Name that was judged last, accepted or not.
  Time now_{};        ///< Of the call under way, for the log.
  bool refusal_noted_ = false;
  NameInspector inspector_;
};

}  // namespace drupe::net
