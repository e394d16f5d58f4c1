// The resolver at the gateway's address: joins dns::Proxy with the guest's datagrams and connections and with
// the host's resolvers.
#pragma once

#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "net/dns/framing.h"
#include "net/dns/proxy.h"
#include "net/program/upstream.h"
#include "net/world/driver.h"

namespace drupe::net {

inline constexpr std::uint16_t kDnsPort = 53;

/// One thread, that of `loop`; pins and log live longer. An upstream that does not answer makes SERVFAIL
/// within dns::Proxy::kGiveUp.
class Resolver final : public LocalService {
 public:
  Resolver(EventLoop& loop, std::vector<Endpoint> servers, std::shared_ptr<const Policy> policy, Pins& pins,
           EgressLog& log, dns::Proxy::Options options);
  ~Resolver() override;
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;
  /// Once, before any flow. `driver` lives longer than any call from it.
  void attach(Driver& driver) { driver_ = &driver; }

  void set_policy(std::shared_ptr<const Policy> policy) { proxy_.set_policy(std::move(policy)); }
  void set_servers(std::vector<Endpoint> servers) { upstream_.set_servers(std::move(servers)); }
  void set_local_names(dns::LocalNames names) { proxy_.set_local_names(std::move(names)); }

  void on_datagram(FlowId flow, ByteView payload);
  void on_datagrams_gone(FlowId flow);
  void on_local_bytes(FlowId flow, ByteView bytes) override;
  void on_local_end(FlowId flow) override;
  void on_connection_gone(FlowId flow);

 private:
  struct Connection {
    dns::TcpFraming framing;
    std::set<std::uint16_t> unanswered;  // identifiers of queries
    bool ended = false;                  // by the guest
  };
  void carry(const dns::Output& output);
  void answer(const dns::Answer& answer);
  void arm();

  EventLoop& loop_;
  Driver* driver_ = nullptr;
  dns::Proxy proxy_;
  Upstream upstream_;
  std::unordered_map<std::uint64_t, Connection> connections_;  // by client
  EventLoop::TimerId timer_ = 0;
};

}  // namespace drupe::net
