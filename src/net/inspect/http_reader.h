// The client's side of an HTTP/1 connection: every request's name is judged before its head goes on.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "net/inspect/http_head.h"
#include "net/inspect/name_judge.h"

namespace drupe::net {

struct HttpOptions {
  /// Every request must have a Host that the judge accepts, and CONNECT is refused. Without it only names
  /// that are there are judged, and what follows an accepted CONNECT is not looked at.
  bool name_required = true;
};

/// Fed with the client's bytes in order, in pieces of any size. Follows bodies by Content-Length and chunks
/// to the next request; line ends are CR LF and nothing else. After a request to upgrade to WebSocket that is
/// the connection's first, it waits for the server's answer: 101 makes the rest opaque. After every other
/// answer, and after upgrades to anything else, the client's bytes are read as requests, so a protocol that
/// is none ends the connection. One connection, one thread.
class HttpReader {
 public:
  HttpReader(NameJudge judge, HttpOptions options) : judge_(std::move(judge)), options_(options) {}

  [[nodiscard]] Inspection feed(ByteView bytes);
  /// The server's bytes from the connection's first on, as long as wants_server().
  [[nodiscard]] Inspection feed_server(ByteView bytes);
  [[nodiscard]] bool wants_server() const { return awaiting_ != Awaiting::kNothing; }
  [[nodiscard]] bool opaque() const { return state_ == State::kOpaque; }
  /// Host of the last accepted request; empty before.
  [[nodiscard]] const std::string& name() const { return name_; }
  void set_judge(NameJudge judge) { judge_ = std::move(judge); }

 private:
  enum class State : std::uint8_t {
    kRequestLine,
    kHeaders,
    kBody,
    kChunkSize,
    kChunkData,
    kChunkEnd,
    kTrailers,
    kHeld,  ///< The server's answer to an upgrade decides what the bytes mean.
    kOpaque,
    kRefused,
  };
  enum class Awaiting : std::uint8_t { kNothing, kWebSocket, kOther };

  void consume(ByteView bytes);
  ByteView consume_body(ByteView bytes);
  ByteView consume_line(ByteView bytes);
  void line_complete(std::string_view line);
  void head_complete();
  void chunk_size(std::string_view line);
  void trailer(std::string_view line);
  void request_complete();
  void server_decided(bool switched);
  void refuse(std::string reason);
  [[nodiscard]] Inspection result() const;

  NameJudge judge_;
  HttpOptions options_;
  State state_ = State::kRequestLine;
  Awaiting awaiting_ = Awaiting::kNothing;
  HttpHead head_;
  std::string line_;
  std::string held_;         ///< Client bytes that wait for the server's answer.
  std::string server_head_;  ///< The head of the server's answer so far.
  std::uint64_t left_ = 0;   ///< Bytes of the body or chunk still to come.
  std::uint64_t requests_ = 0;
  std::uint64_t trailers_ = 0;
  std::uint64_t fed_ = 0;       ///< Client bytes given.
  std::uint64_t consumed_ = 0;  ///< Client bytes read; the others are in held_.
  std::uint64_t judged_ = 0;
  std::string name_;
  std::string reason_;
};

}  // namespace drupe::net
