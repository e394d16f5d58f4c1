// drupe-net: one sandbox's network, told over a control socket what is allowed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/program/control_channel.h"
#include "net/program/host_watch.h"
#include "net/program/ledger_map.h"
#include "net/program/peers.h"
#include "net/program/policy_gate.h"
#include "net/program/publisher.h"
#include "net/program/quota.h"
#include "net/program/resolver.h"
#include "protocol/net_control.h"

namespace drupe::net {

/// Serves `control` until it closes. The first request must be kConfigure; once it has succeeded the process
/// has opened what only it may open, and `lock_down` is called before the answer and before the first frame
/// is read. One thread, that of `loop`.
class NetProcess {
 public:
  /// Irreversible; returns what the host did not allow.
  using LockDown = std::function<Result<std::vector<std::string>>()>;
  NetProcess(EventLoop& loop, UniqueFd control, UniqueFd link, LockDown lock_down);
  ~NetProcess();
  NetProcess(const NetProcess&) = delete;
  NetProcess& operator=(const NetProcess&) = delete;

  /// Returns when the control socket closed; the error is that of the socket or of its peer's records.
  Status run();

 private:
  /// What exists once a configuration is accepted.
  struct Running;
  void on_record(std::uint32_t id, ByteView payload);
  Result<std::string> handle(std::uint16_t kind, ByteView body);
  Result<std::string> configure(ByteView body);
  Result<std::string> set_policy(ByteView body);
  Result<std::string> set_networks(ByteView body);
  Result<std::string> set_resolvers(ByteView body);
  Result<std::string> take_listener();
  Result<std::string> take_channel(ByteView body);
  void want_peer(const PeerId& peer);
  Result<std::string> read_log(ByteView body) const;
  [[nodiscard]] std::string counters() const;
  [[nodiscard]] std::string saved_net() const;
  Status open_ledger(const NetConfig& config);
  void go_on(const std::string& saved);
  Result<std::shared_ptr<const Policy>> compile(const std::string& spec);
  void host_changed();

  EventLoop& loop_;
  UniqueFd link_;
  LockDown lock_down_;
  ControlChannel control_;
  Status ended_;
  std::string spec_;  // of the policy in force
  std::uint64_t generation_ = 0;
  std::unique_ptr<HostWatch> host_;
  Pins pins_;
  EgressLog log_;
  Quota quota_;
  LedgerMap ledger_;
  std::unique_ptr<Running> running_;
};

}  // namespace drupe::net
