// One request and its answer, on a connection that a worker thread holds meanwhile. Calls block, with
// deadlines.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "api/http/message.h"
#include "api/http/parser.h"
#include "base/event_loop.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe::api {

/// A client that takes or sends nothing for so long is given up.
inline constexpr std::chrono::seconds kStallLimit{60};
/// The same for streams, whose reader may have good reason to wait; what it reads from waits with it.
inline constexpr std::chrono::minutes kStreamStallLimit{10};

/// A client's connection: its socket (non-blocking) and what was read of it and not yet used.
struct Connection {
  UniqueFd fd;
  std::string buffer;
  std::string peer;  ///< Its numeric address.
};

/// Used by one thread. The first failure of the connection is kCancelled; after it nothing more can be said.
class Exchange {
 public:
  /// `connection` is borrowed; its buffer begins behind the head.
  Exchange(Connection& connection, RequestHead head, RequestParser parser, std::string request_id)
      : connection_(connection),
        head_(std::move(head)),
        parser_(std::move(parser)),
        id_(std::move(request_id)) {
    body_done_ = !head_.has_body();
  }

  [[nodiscard]] const RequestHead& head() const { return head_; }
  [[nodiscard]] const std::string& request_id() const { return id_; }
  [[nodiscard]] const std::string& peer() const { return connection_.peer; }

  /// Next bytes of the body; 0 at its end. kCancelled when the client leaves before, kInvalidArgument for a
  /// malformed one.
  Result<std::size_t> read_body(std::span<char> into);
  /// The whole body; kLimit when it is longer.
  Result<std::string> whole_body(std::size_t limit);
  [[nodiscard]] bool body_done() const { return body_done_; }

  /// A whole answer.
  Status send(const Response& response);
  /// Begins an answer whose body follows by write(): of `length` bytes, or in chunks.
  Status begin(std::string_view content_type, std::optional<std::uint64_t> length);
  Status write(std::string_view bytes);
  /// Ends a chunked answer.
  Status end();
  /// The connection will be closed without a clean end, so that the client sees that something is missing.
  void abort() { broken_ = true; }
  /// 101: from here on the caller reads and writes the socket itself, beginning with what early_bytes() has.
  Status switch_protocols(std::string_view protocol);
  /// The caller answers on the socket by itself, and the connection serves nothing after that.
  void take_over() { answered_ = switched_ = true; }
  [[nodiscard]] std::string take_early_bytes() { return std::exchange(connection_.buffer, {}); }

  /// For a loop to watch with EPOLLRDHUP: the client has left.
  [[nodiscard]] int fd() const { return connection_.fd.get(); }
  /// Whether the beginning of an answer was sent.
  [[nodiscard]] bool answered() const { return answered_; }
  /// Whether the connection can serve another request after this one.
  [[nodiscard]] bool reusable() const;
  /// Closes the connection after the answer.
  void close_after() { head_.keep_alive = false; }
  [[nodiscard]] int status() const { return status_; }

 private:
  Status send_all(std::string_view bytes, std::chrono::milliseconds limit);
  Result<std::size_t> receive();
  [[nodiscard]] std::string head_text(int status, std::string_view content_type,
                                      std::optional<std::uint64_t> length,
                                      const std::vector<Header>& more) const;

  Connection& connection_;
  RequestHead head_;
  RequestParser parser_;
  std::string id_;
  bool body_done_ = false, continue_sent_ = false, answered_ = false, broken_ = false, chunked_ = false,
       ended_ = false, switched_ = false;
  std::uint64_t left_ = 0;  ///< Of an answer with a length.
  int status_ = 0;
};

}  // namespace drupe::api
