#include "net/inspect/admission.h"

#include "net/policy/name.h"
#include "net/policy/text.h"

namespace drupe::net {
namespace {

LogEntry entry_for(const Destination& to, bool allowed, LogKind kind) {
  LogEntry entry;
  entry.kind = kind;
  entry.allowed = allowed;
  entry.address = to.address;
  entry.port = to.port;
  entry.detail = to_string(to.protocol);
  return entry;
}

}  // namespace

Admitted admit(std::shared_ptr<const Policy> policy, Pins& pins, EgressLog& log, const Destination& to,
               NameInspector::Options options, Time now) {
  std::vector<std::string> pinned = pins.names_at(to.address, now);
  Admitted out;
  out.decision = policy->decide(to, pinned);
  LogEntry entry = entry_for(to, out.decision.allowed, LogKind::kConnection);
  if (!out.decision.names.empty())
    entry.name = out.decision.names.front();
  else if (!pinned.empty())
    entry.name = pinned.front();
  entry.rule = out.decision.rule;
  log.add(std::move(entry), now);
  if (out.decision.allowed)
    out.flow =
        std::make_unique<Admission>(std::move(policy), log, to, out.decision, std::move(pinned), options);
  return out;
}

Admission::Admission(std::shared_ptr<const Policy> policy, EgressLog& log, const Destination& to,
                     Decision decision, std::vector<std::string> pinned, NameInspector::Options options)
    : policy_(std::move(policy)),
      log_(log),
      to_(to),
      decision_(std::move(decision)),
      check_(to.protocol == Protocol::kTcp ? decision_.check : NameCheck::kNone),
      pinned_(std::move(pinned)),
      inspector_(check_, [this](std::string_view name) { return judge(name); }, options) {}

bool Admission::judge(std::string_view name) {
  said_ = normal_name(name).value_or(std::string());
  if (!policy_->accepts_name(decision_, name, to_.port)) return false;
  verified_ = said_;
  note(true, LogKind::kRequest, verified_, std::string(to_string(to_.protocol)),
       policy_->rule_for(verified_, to_.port), now_);
  return true;
}

Inspection Admission::on_client(ByteView bytes, Time now) {
  now_ = now;
  return checked(inspector_.on_client(bytes), now);
}

Inspection Admission::on_server(ByteView bytes, Time now) {
  now_ = now;
  return checked(inspector_.on_server(bytes), now);
}

Inspection Admission::checked(Inspection inspection, Time now) {
  if (inspection.verdict == Inspection::Verdict::kRefuse && !refusal_noted_) {
    refusal_noted_ = true;
    note(false, LogKind::kRequest, said_, inspection.reason, decision_.rule, now);
  }
  return inspection;
}

bool Admission::replace_policy(std::shared_ptr<const Policy> policy, Time now) {
  // For datagrams the rule by port is all there was to check, and is checked again with the names of the
  // beginning.
  const NameCheck check = to_.protocol == Protocol::kTcp ? check_ : decision_.check;
  Decision decision = policy->recheck({to_, check, pinned_, verified_});
  if (!decision.allowed) {
    note(false, LogKind::kConnection, verified_, "ended by a new policy", decision.rule, now);
    return false;
  }
  policy_ = std::move(policy);
  decision_ = std::move(decision);
  return true;
}

void Admission::note(bool allowed, LogKind kind, const std::string& name, std::string detail,
                     std::string rule, Time now) {
  LogEntry entry = entry_for(to_, allowed, kind);
  entry.name = name;
  entry.detail = std::move(detail);
  entry.rule = std::move(rule);
  log_.add(std::move(entry), now);
}

}  // namespace drupe::net
