// Decides about every flow of the guest: by policy, pins and quota.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "net/inspect/admission.h"
#include "net/program/ledger_map.h"
#include "net/program/peers.h"
#include "net/program/publisher.h"
#include "net/program/quota.h"
#include "net/program/resolver.h"
#include "net/world/driver.h"
#include "net/world/gate.h"

namespace drupe::net {

/// Keeps an Admission for every flow that was let through. Members of private networks are none of the
/// policy's business: flows to their addresses are theirs (Peers). The gateway's addresses serve DNS and
/// nothing else. One thread, that of `loop`; what it refers to lives longer.
class PolicyGate final : public Gate, public UdpGate {
 public:
  struct Parts {
    EventLoop& loop;
    Pins& pins;
    EgressLog& log;
    Resolver& resolver;
    Publisher& publisher;
    Peers& peers;
    Quota& quota;
    LedgerMap& ledger;
  };
  PolicyGate(const Parts& parts, std::shared_ptr<const Policy> policy)
      : parts_(parts), policy_(std::move(policy)) {}
  /// Once, before any flow. `driver` lives longer than any call from it.
  void attach(Driver& driver);

  /// Judges every open flow again and resets those that are not allowed any more.
  void set_policy(std::shared_ptr<const Policy> policy);
  /// The quota may have been raised, or is used up already: then every flow ends.
  void quota_changed();

  [[nodiscard]] std::uint64_t admitted() const { return admitted_ + parts_.peers.admitted(); }
  [[nodiscard]] std::uint64_t refused() const { return refused_ + parts_.peers.refused(); }

  void on_connect(FlowId flow, const FlowKey& key) override;
  void on_gone(FlowId flow, const FlowReport& report) override;
  void on_guest_refused(FlowId flow, CloseReason reason, UniqueFd socket) override;
  void on_guest_accepted(FlowId flow) override { parts_.peers.on_guest_accepted(flow); }
  void end_peer(FlowId flow, int socket) override { parts_.peers.end_peer(flow, socket); }
  bool peer_ended_well(FlowId flow) override { return parts_.peers.peer_ended_well(flow); }
  UdpVerdict on_flow(FlowId flow, const FlowKey& key, ByteView first) override;
  void on_local(FlowId flow, const FlowKey& key, ByteView payload) override;
  void on_udp_gone(FlowId flow, std::uint64_t to_world, std::uint64_t to_guest) override;

 private:
  using Admissions = std::unordered_map<std::uint64_t, std::unique_ptr<Admission>>;  // by flow
  [[nodiscard]] bool is_gateway(const PacketAddress& address) const;
  /// The reason why a flow is refused whatever the policy says; empty: none.
  [[nodiscard]] std::string refusal_before_policy(const FlowKey& key) const;
  Admission* admit_flow(Admissions& flows, FlowId flow, const FlowKey& key, Protocol protocol);
  void refuse(const FlowKey& key, Protocol protocol, const std::string& rule);
  void count(std::size_t bytes);
  void end_all();

  Parts parts_;
  Driver* driver_ = nullptr;
  std::shared_ptr<const Policy> policy_;  // shared with flows that are judged by it
  Admissions tcp_, udp_;
  bool ending_ = false;
  std::uint64_t admitted_ = 0, refused_ = 0;
};

}  // namespace drupe::net
