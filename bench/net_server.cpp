#include "net_server.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace drupe::bench {
namespace {

constexpr std::size_t kBlock = 256 * 1024;
constexpr int kBacklog = 1024;
constexpr rlim_t kDescriptors = 4096;

/// Sends or takes as much as was asked for.
void transfer(const UniqueFd& connection, char direction, std::uint64_t bytes) {
  std::vector<char> block(kBlock);
  while (bytes > 0) {
    const std::size_t most = std::min<std::uint64_t>(bytes, block.size());
    const ssize_t moved = direction == 'd' ? ::send(connection.get(), block.data(), most, MSG_NOSIGNAL)
                                           : ::recv(connection.get(), block.data(), most, 0);
    if (moved <= 0) return;
    bytes -= static_cast<std::uint64_t>(moved);
  }
  if (direction == 'u') ::send(connection.get(), "k", 1, MSG_NOSIGNAL);
  // The other end closes first.
  char end = 0;
  while (::recv(connection.get(), &end, 1, 0) > 0) {
  }
}

/// Reads up to the line's end; false when there is none.
bool read_line(int fd, std::string& line) {
  char c = 0;
  while (line.size() < 32 && ::recv(fd, &c, 1, 0) == 1) {
    if (c == '\n') return true;
    line.push_back(c);
  }
  return false;
}

sockaddr_in numeric(const std::string& address, std::uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  ::inet_pton(AF_INET, address.c_str(), &in.sin_addr);
  return in;
}

}  // namespace

Result<std::unique_ptr<NetServer>> NetServer::listen(const std::string& address) {
  std::unique_ptr<NetServer> server(new NetServer);
  const rlimit limit{kDescriptors, kDescriptors};
  ::setrlimit(RLIMIT_NOFILE, &limit);
  server->listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  server->stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  sockaddr_in in = numeric(address, 0);
  socklen_t size = sizeof in;
  if (::bind(server->listener_.get(), reinterpret_cast<const sockaddr*>(&in), sizeof in) != 0 ||
      ::listen(server->listener_.get(), kBacklog) != 0 ||
      ::getsockname(server->listener_.get(), reinterpret_cast<sockaddr*>(&in), &size) != 0)
    return fail_sys("Listening on " + address + " failed", errno);
  server->port_ = ntohs(in.sin_port);
  server->thread_ = std::thread([raw = server.get()] { raw->serve(); });
  return server;
}

NetServer::~NetServer() {
  const std::uint64_t one = 1;
  if (thread_.joinable() && ::write(stop_.get(), &one, sizeof one) == sizeof one) thread_.join();
}

void NetServer::serve() {
  std::map<int, UniqueFd> waiting;  // for their first line
  std::vector<std::thread> transfers;
  while (true) {
    std::vector<pollfd> watched{{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const auto& [fd, connection] : waiting) watched.push_back({fd, POLLIN, 0});
    if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) break;
    if (watched[0].revents != 0) break;
    if (watched[1].revents != 0) {
      UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (connection.valid()) waiting.emplace(connection.get(), std::move(connection));
    }
    for (std::size_t i = 2; i < watched.size(); ++i) {
      if (watched[i].revents == 0) continue;
      const auto found = waiting.find(watched[i].fd);
      std::string line;
      if (!read_line(found->first, line)) {
        waiting.erase(found);
      } else if (line == "e") {
        // Held open until the other end closes; its next line is what ends it.
        char c = 0;
        if (::recv(found->first, &c, 1, MSG_WAITALL) == 1) ::send(found->first, &c, 1, MSG_NOSIGNAL);
      } else {
        const std::uint64_t bytes = std::strtoull(line.c_str() + 1, nullptr, 10) << 20;
        transfers.emplace_back([connection = std::move(found->second), direction = line[0], bytes] {
          transfer(connection, direction, bytes);
        });
        waiting.erase(found);
      }
    }
  }
  waiting.clear();
  for (std::thread& one : transfers) one.join();
}

Result<std::string> own_address() {
  const UniqueFd probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // A destination for documentation (RFC 5737): connecting a datagram socket only chooses the route.
  sockaddr_in in = numeric("192.0.2.1", 9);
  socklen_t size = sizeof in;
  std::array<char, INET_ADDRSTRLEN> text{};
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&in), sizeof in) != 0 ||
      ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&in), &size) != 0 ||
      ::inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size()) == nullptr)
    return fail(ErrorCode::kUnsupported, "This machine has no address but loopback",
                "Run the row where the host has a network.");
  return std::string(text.data());
}

}  // namespace drupe::bench
