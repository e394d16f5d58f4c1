#include "api/http/server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <unordered_map>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "api/http/url.h"
#include "api/http/workers.h"
#include "base/bytes.h"
#include "base/ids.h"
#include "base/log.h"

namespace drupe::api {
namespace {

constexpr int kBacklog = 1024;
constexpr std::size_t kReadStep = 16384;
constexpr std::chrono::milliseconds kTick{1000};
/// After the last answer the client's own bytes are read away for so long: a close with unread bytes would
/// reset the connection, and the answer might be lost with it.
constexpr std::chrono::seconds kLinger{2};
constexpr std::string_view kBadRequest =
    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
constexpr std::string_view kBusy =
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    "Content-Type: application/json\r\nContent-Length: 87\r\n\r\n"
    R"({"status":"error","message":"too many requests are in progress; try again","code":503})"
    "\n";
constexpr std::string_view kTooLong =
    "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

Result<UniqueFd> bind_socket(const ServerOptions& options) {
  sockaddr_storage storage{};
  socklen_t size = 0;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (::inet_pton(AF_INET, options.address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(options.port);
    size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, options.address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(options.port);
    size = sizeof *v6;
  } else {
    return fail(ErrorCode::kInvalidArgument, "'" + options.address + "' is no numeric address to listen on",
                "Write for example 127.0.0.1 or ::1.");
  }
  UniqueFd fd(::socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return fail_sys("Creating a socket failed", errno);
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    const int err = errno;
    auto failed =
        fail_sys("Listening on " + options.address + ":" + std::to_string(options.port) + " failed", err);
    if (err == EADDRINUSE) failed.error().next_step = "Another program has the port; choose one with --port.";
    return failed;
  }
  return fd;
}

std::string numeric(const sockaddr_storage& peer) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* const address =
      peer.ss_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(&peer)->sin6_addr)
          : static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(&peer)->sin_addr);
  if (::inet_ntop(peer.ss_family, address, text.data(), text.size()) == nullptr) return {};
  return text.data();
}

class ServerImpl final : public Server {
 public:
  ServerImpl(ServerOptions options, Handler handler, UniqueFd listener, UniqueFd wake,
             std::unique_ptr<EventLoop> loop)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        listener_(std::move(listener)),
        wake_(std::move(wake)),
        loop_(std::move(loop)) {}

  ~ServerImpl() override { workers_.reset(); }

  Status run() override;
  void stop() override {
    stopping_.store(true);
    knock();
  }
  [[nodiscard]] std::uint16_t port() const override {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    if (::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&storage), &size) != 0) return 0;
    return ntohs(storage.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(&storage)->sin_port
                                              : reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  }

 private:
  /// A connection that waits for its next request, or is about to be closed.
  struct Waiting {
    Connection connection;
    Deadline deadline;
    bool lingers = false;  ///< Everything was said; only reads what comes.
  };

  void knock() const {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(wake_.get(), &one, sizeof one));
  }
  void accept_all();
  void adopt(Connection connection);
  void on_readable(int fd);
  void consider(int fd);
  void dispatch(Connection connection);
  /// In a worker: requests of one connection, one after the other, while they are there already.
  void serve(Connection connection);
  [[nodiscard]] bool serve_one(Connection& connection);
  void give_back(Connection connection, bool close);
  void take_back();
  void say_and_close(int fd, std::string_view text);
  void linger(Connection connection);
  void tick();
  void forget(int fd);

  const ServerOptions options_;
  const Handler handler_;
  UniqueFd listener_, wake_;
  std::unique_ptr<EventLoop> loop_;
  std::unordered_map<int, Waiting> waiting_;
  bool accepting_ = false;
  std::atomic<bool> stopping_ = false;

  std::mutex mutex_;
  std::vector<std::pair<Connection, bool>> returned_;  ///< Under mutex_.
  std::map<int, int> in_work_;                         ///< Under mutex_: sockets that workers hold.
  std::unique_ptr<Workers> workers_ = std::make_unique<Workers>(options_.max_workers);
};

Status ServerImpl::run() {
  DRUPE_TRY(loop_->watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_all(); }));
  accepting_ = true;
  DRUPE_TRY(loop_->watch(wake_.get(), EPOLLIN, [this](std::uint32_t) {
    std::uint64_t count = 0;
    static_cast<void>(!::read(wake_.get(), &count, sizeof count));
    take_back();
  }));
  loop_->after(kTick, [this] { tick(); });
  while (!stopping_.load()) DRUPE_TRY(loop_->run_once(Deadline::max()));
  loop_->unwatch(listener_.get());
  listener_.reset();
  while (!waiting_.empty()) forget(waiting_.begin()->first);
  const auto idle = [this] {
    const std::scoped_lock lock(mutex_);
    return in_work_.empty();
  };
  DRUPE_ASSIGN(const bool drained, loop_->run_until(idle, Clock::now() + options_.drain_deadline));
  if (!drained) {
    const std::scoped_lock lock(mutex_);
    for (const auto& [fd, unused] : in_work_) ::shutdown(fd, SHUT_RDWR);
  }
  workers_.reset();
  return {};
}

void ServerImpl::accept_all() {
  while (waiting_.size() < options_.max_connections) {
    Connection connection;
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    connection.fd = UniqueFd(
        ::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!connection.fd.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      log(LogLevel::kWarning, "Accepting a connection failed: " + std::string(std::strerror(errno)));
      break;
    }
    connection.peer = numeric(peer);
    const int on = 1;
    ::setsockopt(connection.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (options_.wrap) {
      auto inner = options_.wrap(std::move(connection.fd));
      if (!inner) {
        log(LogLevel::kWarning, inner.error().message);
        continue;
      }
      connection.fd = *std::move(inner);
    }
    adopt(std::move(connection));
  }
  // Full, or out of descriptors: the next tick looks again.
  loop_->unwatch(listener_.get());
  accepting_ = false;
}

void ServerImpl::adopt(Connection connection) {
  const int fd = connection.fd.get();
  const bool begun = !connection.buffer.empty();
  waiting_[fd] = {std::move(connection),
                  Clock::now() + (begun ? options_.head_deadline : options_.idle_deadline), false};
  if (auto watched = loop_->watch(fd, EPOLLIN, [this, fd](std::uint32_t) { on_readable(fd); }); !watched) {
    log(LogLevel::kWarning, watched.error().message);
    waiting_.erase(fd);
    return;
  }
  if (begun) consider(fd);
}

void ServerImpl::forget(int fd) {
  loop_->unwatch(fd);
  waiting_.erase(fd);
}

void ServerImpl::on_readable(int fd) {
  Waiting& one = waiting_.at(fd);
  std::array<char, kReadStep> part{};
  const auto count = ::recv(fd, part.data(), part.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (count <= 0) return forget(fd);
  if (one.lingers) return;
  if (one.connection.buffer.empty()) one.deadline = Clock::now() + options_.head_deadline;
  one.connection.buffer.append(part.data(), static_cast<std::size_t>(count));
  consider(fd);
}

void ServerImpl::consider(int fd) {
  Waiting& one = waiting_.at(fd);
  const std::string& buffer = one.connection.buffer;
  if (buffer.starts_with(kHttp2Preface.substr(0, 18))) return say_and_close(fd, kBadRequest);
  if (head_length(buffer) == 0) {
    if (buffer.size() > kMaxHeadBytes) say_and_close(fd, kTooLong);
    return;
  }
  Connection connection = std::move(one.connection);
  forget(fd);
  dispatch(std::move(connection));
}

void ServerImpl::dispatch(Connection connection) {
  const int fd = connection.fd.get();
  {
    const std::scoped_lock lock(mutex_);
    in_work_[fd] = fd;
  }
  // Shared by name only: a task that was not taken is still here.
  auto shared = std::make_shared<Connection>(std::move(connection));
  Workers::Task task = [this, shared] { serve(std::move(*shared)); };
  if (workers_->submit(task)) return;
  {
    const std::scoped_lock lock(mutex_);
    in_work_.erase(fd);
  }
  static_cast<void>(::send(fd, kBusy.data(), kBusy.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  linger(std::move(*shared));
}

void ServerImpl::serve(Connection connection) {
  bool again = true;
  while (again) {
    again = serve_one(connection);
    if (again && head_length(connection.buffer) == 0) break;
  }
  give_back(std::move(connection), !again);
}

bool ServerImpl::serve_one(Connection& connection) {
  const std::size_t length = head_length(connection.buffer);
  RequestParser parser;
  auto head = length > kMaxHeadBytes
                  ? Result<RequestHead>(fail(ErrorCode::kLimit, "The request's head is too long"))
                  : parser.head(std::string_view(connection.buffer).substr(0, length));
  if (head)
    if (auto split = split_target(*head); !split) head = std::unexpected(std::move(split).error());
  connection.buffer.erase(0, length);
  if (!head) {
    static_cast<void>(
        ::send(connection.fd.get(), kBadRequest.data(), kBadRequest.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
    return false;
  }
  Exchange exchange(connection, *std::move(head), std::move(parser), "req_" + to_hex(random_bytes(8)));
  if (stopping_.load()) exchange.close_after();
  handler_(exchange);
  return exchange.reusable() && !stopping_.load();
}

void ServerImpl::give_back(Connection connection, bool close) {
  {
    const std::scoped_lock lock(mutex_);
    in_work_.erase(connection.fd.get());
    returned_.emplace_back(std::move(connection), close);
  }
  knock();
}

void ServerImpl::take_back() {
  std::vector<std::pair<Connection, bool>> back;
  {
    const std::scoped_lock lock(mutex_);
    back.swap(returned_);
  }
  for (auto& [connection, close] : back) {
    if (stopping_.load()) continue;
    if (close)
      linger(std::move(connection));
    else
      adopt(std::move(connection));
  }
}

void ServerImpl::say_and_close(int fd, std::string_view text) {
  static_cast<void>(::send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  Connection connection = std::move(waiting_.at(fd).connection);
  forget(fd);
  linger(std::move(connection));
}

void ServerImpl::linger(Connection connection) {
  const int fd = connection.fd.get();
  if (::shutdown(fd, SHUT_WR) != 0) return;  // it has left
  connection.buffer.clear();
  waiting_[fd] = {std::move(connection), Clock::now() + kLinger, true};
  if (!loop_->watch(fd, EPOLLIN, [this, fd](std::uint32_t) { on_readable(fd); })) waiting_.erase(fd);
}

void ServerImpl::tick() {
  const auto now = Clock::now();
  std::vector<int> over;
  for (const auto& [fd, one] : waiting_)
    if (one.deadline <= now) over.push_back(fd);
  for (const int fd : over) forget(fd);
  if (!accepting_ && waiting_.size() < options_.max_connections && listener_.valid()) {
    accepting_ = loop_->watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_all(); }).has_value();
  }
  loop_->after(kTick, [this] { tick(); });
}

}  // namespace

Result<std::unique_ptr<Server>> Server::listen(ServerOptions options, Handler handler) {
  DRUPE_ASSIGN(UniqueFd listener, bind_socket(options));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return fail_sys("Creating an event descriptor failed", errno);
  DRUPE_ASSIGN(auto loop, EventLoop::create());
  return std::make_unique<ServerImpl>(std::move(options), std::move(handler), std::move(listener),
                                      std::move(wake), std::move(loop));
}

}  // namespace drupe::api
