#include "api/http/exchange.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include <poll.h>
#include <sys/socket.h>

namespace drupe::api {
namespace {

constexpr std::size_t kReadStep = std::size_t{64} * 1024;
/// A body that nobody asked for is read to its end when it is this short; else the connection is closed.
constexpr std::size_t kDrainLimit = std::size_t{256} * 1024;

std::unexpected<Error> gone(std::string_view how) {
  return fail(ErrorCode::kCancelled, "The client left: " + std::string(how));
}

/// 1 ready, 0 deadline, -1 error.
int wait_for(int fd, short events, std::chrono::milliseconds limit) {
  pollfd entry{fd, events, 0};
  const Deadline deadline = Clock::now() + limit;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const int count = ::poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (count >= 0 || errno != EINTR) return count;
  }
}

}  // namespace

Result<std::size_t> Exchange::receive() {
  const std::size_t before = connection_.buffer.size();
  connection_.buffer.resize(before + kReadStep);
  while (true) {
    const auto count =
        ::recv(connection_.fd.get(), connection_.buffer.data() + before, kReadStep, MSG_DONTWAIT);
    if (count > 0) {
      connection_.buffer.resize(before + static_cast<std::size_t>(count));
      return static_cast<std::size_t>(count);
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) &&
        wait_for(connection_.fd.get(), POLLIN, kStallLimit) > 0)
      continue;
    connection_.buffer.resize(before);
    broken_ = true;
    return gone(count == 0 ? "it sent no complete request" : "it sent nothing for a minute");
  }
}

Result<std::size_t> Exchange::read_body(std::span<char> into) {
  if (head_.expect_continue && !continue_sent_ && !body_done_ && connection_.buffer.empty()) {
    DRUPE_TRY(send_all("HTTP/1.1 100 Continue\r\n\r\n", kStallLimit));
  }
  continue_sent_ = true;
  while (!body_done_) {
    auto step = parser_.body(connection_.buffer, into);
    if (!step) {
      broken_ = true;
      return std::unexpected(std::move(step).error());
    }
    connection_.buffer.erase(0, step->consumed);
    body_done_ = step->done;
    if (step->produced != 0) return step->produced;
    if (connection_.buffer.size() > kMaxHeadBytes + kReadStep) {
      broken_ = true;
      return fail(ErrorCode::kInvalidArgument, "The request's body is malformed");
    }
    if (!body_done_) DRUPE_TRY(receive());
  }
  return 0;
}

Result<std::string> Exchange::whole_body(std::size_t limit) {
  if (head_.content_length.value_or(0) > limit)
    return fail(ErrorCode::kLimit, "The request's body is longer than " + std::to_string(limit) + " bytes");
  std::string body;
  std::array<char, 16384> part{};
  while (true) {
    DRUPE_ASSIGN(const std::size_t count, read_body(part));
    if (count == 0) return body;
    if (body.size() + count > limit)
      return fail(ErrorCode::kLimit, "The request's body is longer than " + std::to_string(limit) + " bytes");
    body.append(part.data(), count);
  }
}

Status Exchange::send_all(std::string_view bytes, std::chrono::milliseconds limit) {
  if (broken_) return gone("its connection is broken");
  while (!bytes.empty()) {
    const auto count = ::send(connection_.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
      continue;
    }
    if (errno == EINTR) continue;
    if ((errno == EAGAIN || errno == EWOULDBLOCK) && wait_for(connection_.fd.get(), POLLOUT, limit) > 0)
      continue;
    broken_ = true;
    return gone("it takes no answer");
  }
  return {};
}

std::string Exchange::head_text(int status, std::string_view content_type,
                                std::optional<std::uint64_t> length, const std::vector<Header>& more) const {
  std::string out = "HTTP/1.1 " + std::to_string(status) + " " + std::string(reason_phrase(status)) + "\r\n";
  const auto add = [&out](std::string_view name, std::string_view value) {
    out.append(name).append(": ").append(value).append("\r\n");
  };
  add("Content-Type", content_type);
  if (length)
    add("Content-Length", std::to_string(*length));
  else
    add("Transfer-Encoding", "chunked");
  add("Cache-Control", "no-store");
  add("X-Content-Type-Options", "nosniff");
  add("X-Request-Id", id_);
  for (const Header& one : more) add(one.name, one.value);
  if (!head_.keep_alive) add("Connection", "close");
  return out + "\r\n";
}

Status Exchange::send(const Response& response) {
  // What follows an unread body on the connection would be taken for a request.
  std::array<char, 16384> part{};
  std::size_t drained = 0;
  while (!body_done_ && !broken_ && head_.keep_alive) {
    const auto count = drained > kDrainLimit || head_.content_length.value_or(0) > kDrainLimit ||
                               (head_.expect_continue && !continue_sent_)
                           ? Result<std::size_t>(fail(ErrorCode::kLimit, ""))
                           : read_body(part);
    if (!count) {
      close_after();
      broken_ = broken_ && count.error().code == ErrorCode::kCancelled;
    } else {
      drained += *count;
    }
  }
  answered_ = ended_ = true;
  status_ = response.status;
  if (!body_done_) close_after();
  std::string text =
      head_text(response.status, response.content_type, response.body.size(), response.headers);
  if (head_.method != "HEAD") text += response.body;
  const bool malformed = std::exchange(broken_, false);
  auto sent = send_all(text, kStallLimit);
  broken_ = broken_ || malformed;
  return sent;
}

Status Exchange::begin(std::string_view content_type, std::optional<std::uint64_t> length) {
  if (!body_done_) close_after();
  answered_ = true;
  status_ = 200;
  chunked_ = !length;
  left_ = length.value_or(0);
  ended_ = length && left_ == 0;
  return send_all(head_text(200, content_type, length, {}), kStallLimit);
}

Status Exchange::write(std::string_view bytes) {
  if (bytes.empty()) return {};
  if (!chunked_) {
    if (bytes.size() > left_) return fail(ErrorCode::kHost, "An answer is longer than it was said to be");
    left_ -= bytes.size();
    ended_ = left_ == 0;
    return send_all(bytes, kStreamStallLimit);
  }
  std::array<char, 20> size{};
  const int digits = std::snprintf(size.data(), size.size(), "%zx\r\n", bytes.size());
  std::string chunk(size.data(), static_cast<std::size_t>(digits));
  chunk.append(bytes).append("\r\n");
  return send_all(chunk, kStreamStallLimit);
}

Status Exchange::end() {
  ended_ = true;
  return chunked_ ? send_all("0\r\n\r\n", kStallLimit) : Status{};
}

Status Exchange::switch_protocols(std::string_view protocol) {
  answered_ = switched_ = true;
  status_ = 101;
  return send_all("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " +
                      std::string(protocol) + "\r\nX-Request-Id: " + id_ + "\r\n\r\n",
                  kStallLimit);
}

bool Exchange::reusable() const {
  return head_.keep_alive && !broken_ && !switched_ && body_done_ && answered_ && ended_;
}

}  // namespace drupe::api
