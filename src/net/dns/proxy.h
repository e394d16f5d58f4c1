// The resolver that a sandbox sees: decides about each name, asks upstream, filters, pins. It has no sockets;
// its owner carries the bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "net/dns/message.h"
#include "net/log/egress_log.h"
#include "net/policy/pins.h"
#include "net/policy/policy.h"

namespace drupe::net::dns {

enum class Transport : std::uint8_t { kUdp, kTcp };

/// A message for the guest; over TCP its sender puts tcp_frame() around it.
struct Answer {
  std::uint64_t client = 0;  ///< As given to on_query().
  Transport transport = Transport::kUdp;
  std::string message;
};

/// A message for an upstream resolver. Its owner sends it from a socket that only this token uses (a random
/// port is part of what an off-path forger has to guess), connected to the resolver number `attempt` modulo
/// their count, and gives what comes back to on_upstream() with the same token. Sockets of earlier attempts
/// stay open until the token is in Output::closed: a slow resolver's answer counts.
struct Forward {
  std::uint64_t token = 0;
  Transport transport = Transport::kUdp;
  unsigned attempt = 0;
  std::string message;
};

struct Output {
  std::vector<Answer> answers;
  std::vector<Forward> forwards;
  std::vector<std::uint64_t> closed;  ///< Tokens whose sockets can be closed.
};

/// Names of private networks (<name>.drupe.internal, <name>.fc.local): normalised name -> addresses.
using LocalNames = std::unordered_map<std::string, std::vector<IpAddress>>;

/// One thread. `pins` and `log` live longer than it.
///
/// What a query gets: malformed: FORMERR (without a readable header: nothing). Not allowed, or no host name:
/// REFUSED at once, or NXDOMAIN when the name ends in a search domain, because C libraries end their search
/// at REFUSED. HTTPS and SVCB: no data (clients go on with A and AAAA; nothing tells them of keys for
/// encrypted hellos). AAAA on a host without IPv6: no data. ANY: NOTIMP; zone transfers, other meta
/// types and other classes: REFUSED. Reverse names of closed addresses: NXDOMAIN. Everything else is
/// forwarded as a new message with a random identifier and without the guest's options.
class Proxy {
 public:
  struct Options {
    /// Domains that the guest's resolver appends to short names; normalised.
    std::vector<std::string> search_domains;
    /// kRefused or kNxDomain. musl's resolver waits out its time-out (5 s) at REFUSED; glibc fails at once.
    Rcode refusal = Rcode::kRefused;
  };
  /// Unpredictable 16 bits.
  using Random = std::function<std::uint16_t()>;

  Proxy(std::shared_ptr<const Policy> policy, Pins& pins, EgressLog& log, Random random, Options options);

  /// `client` stands for the guest's address, port and connection.
  [[nodiscard]] Output on_query(std::uint64_t client, Transport transport, ByteView bytes, Time now);
  /// Bytes that do not answer the outstanding question (wrong identifier, other question) are ignored.
  [[nodiscard]] Output on_upstream(std::uint64_t token, Transport transport, ByteView bytes, Time now);
  /// The socket failed (refused, reset, unreachable): the next attempt is made at once.
  [[nodiscard]] Output on_upstream_failed(std::uint64_t token, Time now);
  /// Repeats what got no answer and gives up (SERVFAIL) after kGiveUp.
  [[nodiscard]] Output on_time(Time now);
  [[nodiscard]] std::optional<Time> next_deadline() const;
  /// The client's connection is gone; nothing is answered to it any more. Gives the tokens that end with it.
  [[nodiscard]] Output forget_client(std::uint64_t client);

  /// In force for queries that are under way, too: their answers are judged by the new policy.
  void set_policy(std::shared_ptr<const Policy> policy) { policy_ = std::move(policy); }
  void set_local_names(LocalNames names) { local_ = std::move(names); }
  [[nodiscard]] std::size_t outstanding() const { return pending_.size(); }

  static constexpr std::size_t kMaxOutstanding = 256;  ///< More get SERVFAIL at once.
  static constexpr std::chrono::milliseconds kRetryAfter{1500};
  static constexpr std::chrono::milliseconds kGiveUp{4500};  ///< Below the 5 s of C libraries.
  static constexpr std::size_t kUdpCeiling =
      1232;  ///< Fits every path without fragments (DNS flag day 2020).

 private:
  struct Client {
    std::uint64_t id = 0;
    Transport transport = Transport::kUdp;
    Message query;
  };
  struct Pending {
    Client client;
    std::uint16_t id = 0;
    Transport transport = Transport::kUdp;
    bool edns = true;
    unsigned attempt = 0;
    Time retry_at, give_up_at;
  };
  using PendingMap = std::map<std::uint64_t, Pending>;

  void answer(Output& out, const Client& client, const Message& message) const;
  void answer_code(Output& out, const Client& client, Rcode rcode) const;
  bool answer_here(Output& out, const Client& client, const std::string& name, Time now);
  bool answer_local(Output& out, const Client& client, const std::string& name) const;
  [[nodiscard]] Rcode refusal_of(const std::string& name) const;
  [[nodiscard]] bool is_waiting(const Client& client) const;
  void forward(Output& out, std::uint64_t token, Pending& pending, Time now);
  void finish(Output& out, PendingMap::iterator pending);
  void judge(Output& out, const Client& client, const Message& upstream, Time now);
  void note(const std::string& name, std::uint16_t type, bool allowed, std::string rule, Time now);

  std::shared_ptr<const Policy> policy_;
  Pins& pins_;
  EgressLog& log_;
  Random random_;
  Options options_;
  LocalNames local_;
  PendingMap pending_;
  std::uint64_t next_token_ = 1;
};

/// The address that a name below in-addr.arpa or ip6.arpa stands for (RFC 1035, 3.5; RFC 3596, 2.5).
[[nodiscard]] std::optional<IpAddress> reverse_address(std::string_view name);

}  // namespace drupe::net::dns
