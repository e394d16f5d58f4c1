// Accepts connections and reads the heads of requests in one thread; hands each request to a worker thread,
// which may block. Idle connections cost a descriptor and some hundred bytes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "api/http/exchange.h"
#include "base/result.h"

namespace drupe::api {

struct ServerOptions {
  std::string address = "127.0.0.1";  ///< Numeric.
  std::uint16_t port = 0;             ///< 0: any free one.
  std::size_t max_connections = 8192;
  std::size_t max_workers = 512;           ///< Requests at once; more are answered 503.
  std::chrono::seconds head_deadline{15};  ///< From a request's first byte to the end of its head.
  std::chrono::seconds idle_deadline{120};
  std::chrono::seconds drain_deadline{10};  ///< How long stop() waits for requests in progress.
  /// What stands between: takes an accepted connection and gives the one to serve in its place. May be empty.
  std::function<Result<UniqueFd>(UniqueFd)> wrap;
};

class Server {
 public:
  /// Answers the request. Called in any thread, many at once; must not throw.
  using Handler = std::function<void(Exchange&)>;

  virtual ~Server() = default;
  /// Binds and listens.
  static Result<std::unique_ptr<Server>> listen(ServerOptions options, Handler handler);
  /// Serves until stop(). Then it waits for requests in progress, and cuts their connections when they take
  /// longer than `drain_deadline`.
  virtual Status run() = 0;
  /// From any thread or a signal handler.
  virtual void stop() = 0;
  [[nodiscard]] virtual std::uint16_t port() const = 0;
};

}  // namespace drupe::api
