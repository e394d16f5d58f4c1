#include "net/inspect/http_reader.h"

#include <algorithm>

#include "net/policy/text.h"

namespace drupe::net {

Inspection HttpReader::feed(ByteView bytes) {
  if (state_ != State::kRefused) {
    fed_ += bytes.size();
    consume(bytes);
  }
  return result();
}

void HttpReader::consume(ByteView bytes) {
  while (!bytes.empty()) {
    switch (state_) {
      case State::kRefused:
        return;
      case State::kOpaque:
        consumed_ += bytes.size();
        judged_ = consumed_;
        return;
      case State::kHeld:
        held_ += as_text(bytes);
        if (held_.size() > kMaxHeld) refuse("too much follows a request to upgrade that is not answered yet");
        return;
      case State::kBody:
      case State::kChunkData:
        bytes = consume_body(bytes);
        break;
      default:
        bytes = consume_line(bytes);
        break;
    }
  }
}

ByteView HttpReader::consume_body(ByteView bytes) {
  const auto used = static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size()));
  consumed_ += used;
  judged_ = consumed_;
  left_ -= used;
  if (left_ == 0) {
    if (state_ == State::kBody)
      request_complete();
    else
      state_ = State::kChunkEnd;
  }
  return bytes.subspan(used);
}

ByteView HttpReader::consume_line(ByteView bytes) {
  const auto end = std::ranges::find(bytes, static_cast<std::uint8_t>('\n'));
  const bool complete = end != bytes.end();
  const auto used = static_cast<std::size_t>(end - bytes.begin()) + (complete ? 1 : 0);
  line_ += as_text(bytes.first(used));
  consumed_ += used;
  if (consumed_ - judged_ > kMaxHeld) {
    refuse("the head of an HTTP request is too long");
    return {};
  }
  if (!complete) return {};
  const std::string line = std::move(line_);
  line_.clear();
  if (!line.ends_with("\r\n")) {
    refuse("a line of an HTTP request does not end with CR LF");
    return {};
  }
  const std::string_view text = std::string_view(line).substr(0, line.size() - 2);
  const bool clean = std::ranges::none_of(
      text, [](char c) { return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == '\x7f'; });
  if (!clean) {
    refuse("a line of an HTTP request has control characters");
    return {};
  }
  line_complete(text);
  return bytes.subspan(used);
}

void HttpReader::line_complete(std::string_view line) {
  switch (state_) {
    case State::kRequestLine: {
      head_ = HttpHead();
      if (const auto taken = head_.take_request_line(line); !taken) return refuse(taken.error().message);
      state_ = State::kHeaders;
      return;
    }
    case State::kHeaders: {
      if (line.empty()) return head_complete();
      if (const auto taken = head_.take_header(line); !taken) return refuse(taken.error().message);
      return;
    }
    case State::kChunkSize:
      return chunk_size(line);
    case State::kChunkEnd:
      if (!line.empty()) return refuse("a chunk of an HTTP request is longer than its size");
      judged_ = consumed_;
      state_ = State::kChunkSize;
      return;
    default:
      return trailer(line);
  }
}

void HttpReader::head_complete() {
  if (const auto checked = head_.finish(); !checked) return refuse(checked.error().message);
  const bool connect = head_.is_connect();
  if (options_.name_required && connect) return refuse("CONNECT hides which server is asked");
  if (options_.name_required && !head_.has_host()) return refuse("an HTTP request has no Host field");
  if (!head_.host().empty() && !judge_(head_.host()))
    return refuse("the HTTP host " + shown(head_.host()) + " is not allowed here");
  name_ = head_.host();
  judged_ = consumed_;
  // The server's first answer belongs to the first request; of later ones it is not known here which it
  // belongs to.
  if (++requests_ == 1 && head_.asks_upgrade())
    awaiting_ = head_.offers_only_websocket() ? Awaiting::kWebSocket : Awaiting::kOther;
  if (connect) {
    state_ = State::kOpaque;
  } else if (head_.chunked()) {
    state_ = State::kChunkSize;
  } else if (head_.content_length() != 0) {
    left_ = head_.content_length();
    state_ = State::kBody;
  } else {
    request_complete();
  }
}

void HttpReader::chunk_size(std::string_view line) {
  // RFC 9112, 7.1: hexadecimal digits, then extensions that are read over.
  constexpr std::size_t kMostDigits = 15;
  constexpr std::size_t kLongestLine = 256;
  const std::string_view digits = line.substr(0, line.find(';'));
  if (digits.empty() || digits.size() > kMostDigits || line.size() > kLongestLine)
    return refuse("the size of a chunk of an HTTP request is malformed");
  std::uint64_t size = 0;
  for (const char raw : digits) {
    const char c = to_lower(raw);
    if (!is_digit(c) && (c < 'a' || c > 'f'))
      return refuse("the size of a chunk of an HTTP request is malformed");
    size = size << 4 | static_cast<std::uint64_t>(is_digit(c) ? c - '0' : c - 'a' + 10);
  }
  judged_ = consumed_;
  left_ = size;
  trailers_ = 0;
  state_ = size == 0 ? State::kTrailers : State::kChunkData;
}

void HttpReader::trailer(std::string_view line) {
  if (line.empty()) {
    judged_ = consumed_;
    return request_complete();
  }
  const auto field = split_field(line);
  const std::string name = field ? to_lower(field->name) : std::string();
  // RFC 9110, 6.5.1: what frames or routes a request has no place behind it.
  if (!field || ++trailers_ > HttpHead::kMaxHeaders || name == "host" || name == "content-length" ||
      name == "transfer-encoding")
    return refuse("a field behind the body of an HTTP request is malformed");
  judged_ = consumed_;
}

void HttpReader::request_complete() {
  state_ = awaiting_ == Awaiting::kNothing ? State::kRequestLine : State::kHeld;
}

Inspection HttpReader::feed_server(ByteView bytes) {
  if (awaiting_ == Awaiting::kNothing || state_ == State::kRefused) return result();
  for (const std::uint8_t byte : bytes) {
    server_head_ += static_cast<char>(byte);
    if (server_head_.size() > kMaxHeld) {
      server_decided(false);
      break;
    }
    if (!server_head_.ends_with("\r\n\r\n")) continue;
    // RFC 9110, 15.2: other answers of this class are preliminary.
    const bool final = !server_head_.starts_with("HTTP/1.1 1") || server_head_.starts_with("HTTP/1.1 101");
    if (!final) {
      server_head_.clear();
      continue;
    }
    server_decided(server_head_.starts_with("HTTP/1.1 101"));
    break;
  }
  return result();
}

void HttpReader::server_decided(bool switched) {
  const bool websocket = awaiting_ == Awaiting::kWebSocket;
  awaiting_ = Awaiting::kNothing;
  server_head_.clear();
  if (switched && !websocket)
    return refuse("the server switches to a protocol that does not show which server is asked");
  // An answer may come before the request's body is complete; it is no switch then.
  if (state_ == State::kHeld) state_ = switched ? State::kOpaque : State::kRequestLine;
  const std::string held = std::move(held_);
  held_.clear();
  consume(as_bytes(held));
}

void HttpReader::refuse(std::string reason) {
  state_ = State::kRefused;
  awaiting_ = Awaiting::kNothing;
  reason_ = std::move(reason);
}

Inspection HttpReader::result() const {
  if (state_ == State::kRefused) return {Inspection::Verdict::kRefuse, judged_, reason_};
  return {judged_ == fed_ ? Inspection::Verdict::kPass : Inspection::Verdict::kNeedMore, judged_, {}};
}

}  // namespace drupe::net
