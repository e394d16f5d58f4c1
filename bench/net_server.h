// The server of the network row: sends, takes and holds what the guests' net-work asks for
// (guest/net_commands.c).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe::bench {

/// Listens on one address of this host, on a port that the kernel chooses, until it is destroyed. Its
/// connections are served by one thread each for transfers, all others by one thread together.
class NetServer {
 public:
  static Result<std::unique_ptr<NetServer>> listen(const std::string& address);
  ~NetServer();
  NetServer(const NetServer&) = delete;
  NetServer& operator=(const NetServer&) = delete;
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  NetServer() = default;
  void serve();

  UniqueFd listener_, stop_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

/// An address of this host that is not loopback; kUnsupported when it has none. Nothing is sent.
Result<std::string> own_address();

}  // namespace drupe::bench
