// Sockets to the host's resolvers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/event_loop.h"
#include "net/dns/framing.h"
#include "net/dns/proxy.h"
#include "net/program/addresses.h"

namespace drupe::net {

/// One socket for each message that is forwarded, so that each has a source port of the kernel's choice, and
/// only the resolver that was asked can answer. One thread, that of `loop`; callbacks come from the loop,
/// never from within a call.
class Upstream {
 public:
  using OnAnswer = std::function<void(std::uint64_t token, dns::Transport transport, ByteView message)>;
  /// The latest attempt of `token` failed.
  using OnFailed = std::function<void(std::uint64_t token)>;
  Upstream(EventLoop& loop, std::vector<Endpoint> servers, OnAnswer on_answer, OnFailed on_failed);
  ~Upstream();
  Upstream(const Upstream&) = delete;
  Upstream& operator=(const Upstream&) = delete;

  /// For messages from now on; what was asked before may still be answered.
  void set_servers(std::vector<Endpoint> servers) { servers_ = std::move(servers); }
  void send(const dns::Forward& forward);
  /// Closes the sockets of `token`.
  void close(std::uint64_t token);
  [[nodiscard]] std::size_t sockets() const;

  /// Of all queries; one that needs another one fails.
  static constexpr std::size_t kMaxSockets = 1024;

 private:
  struct Socket {
    unsigned attempt = 0;
    dns::Transport transport = dns::Transport::kUdp;
    UniqueFd fd;
    std::string unsent;  // TCP
    dns::TcpFraming framing;
  };
  using Sockets = std::vector<std::unique_ptr<Socket>>;
  int open(Socket& socket, const Endpoint& server, const std::string& message);
  void on_socket(std::uint64_t token, int fd, std::uint32_t events);
  int write(Socket& socket);
  void read_udp(std::uint64_t token, int fd);
  void read_tcp(std::uint64_t token, int fd);
  void failed(std::uint64_t token, int fd);
  void report_failure(std::uint64_t token, unsigned attempt);
  [[nodiscard]] Socket* find(std::uint64_t token, int fd);

  EventLoop& loop_;
  std::vector<Endpoint> servers_;
  OnAnswer on_answer_;
  OnFailed on_failed_;
  std::map<std::uint64_t, Sockets> sockets_;  // by token; the latest attempt is the last
  std::map<std::uint64_t, unsigned> latest_;  // attempt of each token
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace drupe::net
