#include "hypervisor/qemu/qmp_client.h"

#include <array>
#include <cerrno>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/pass_fds.h"

namespace drupe {

QmpClient::QmpClient(EventLoop& loop, UniqueFd socket, OnEvent on_event)
    : loop_(loop), socket_(std::move(socket)), on_event_(std::move(on_event)) {}

QmpClient::~QmpClient() {
  loop_.unwatch(socket_.get());
}

Status QmpClient::start() {
  return loop_.watch(socket_.get(), EPOLLIN, [this](std::uint32_t) { on_readable(); });
}

Status QmpClient::await_greeting(Deadline deadline) {
  DRUPE_ASSIGN(const bool came, loop_.run_until([this] { return greeted_ || closed_; }, deadline));
  if (closed_) return std::unexpected(*closed_);
  if (!came) return fail(ErrorCode::kTimeout, "The hypervisor did not open its control connection in time");
  return {};
}

Status QmpClient::send_bytes(std::string_view bytes, std::initializer_list<int> fds) {
  const auto put = send_with_fds(socket_.get(), bytes, {std::data(fds), fds.size()});
  if (!put)
    return fail(ErrorCode::kVmLost, "Sending a command to the hypervisor failed: " + put.error().message);
  if (*put != bytes.size()) return fail(ErrorCode::kVmLost, "The hypervisor does not read its commands");
  return {};
}

Result<std::string> QmpClient::send(std::string_view command, std::string_view arguments,
                                    std::initializer_list<int> fds) {
  if (closed_) return std::unexpected(*closed_);
  std::string id = std::to_string(next_id_++);
  DRUPE_TRY(send_bytes(encode_qmp(command, arguments, id), fds));
  pending_[id] = true;
  return id;
}

Result<QmpMessage> QmpClient::await(const std::string& id, Deadline deadline) {
  const auto answered = [this, &id] { return answers_.contains(id) || closed_; };
  DRUPE_ASSIGN(const bool came, loop_.run_until(answered, deadline));
  pending_.erase(id);
  const auto found = answers_.find(id);
  if (found == answers_.end()) {
    if (closed_) return std::unexpected(*closed_);
    if (!came) return fail(ErrorCode::kTimeout, "The hypervisor did not answer in time");
    return fail(ErrorCode::kHost, "A command's answer was lost");
  }
  QmpMessage answer = std::move(found->second);
  answers_.erase(found);
  if (answer.kind == QmpMessage::Kind::kError)
    return fail(ErrorCode::kHost, "The hypervisor refused: " + answer.error.substr(0, 1000));
  return answer;
}

Result<QmpMessage> QmpClient::execute(std::string_view command, std::string_view arguments, Deadline deadline,
                                      std::initializer_list<int> fds) {
  DRUPE_ASSIGN(const std::string id, send(command, arguments, fds));
  auto answer = await(id, deadline);
  if (!answer) return std::unexpected(std::move(answer).error().in(command));
  return answer;
}

void QmpClient::close(Error reason) {
  if (closed_) return;
  closed_ = std::move(reason);
  loop_.unwatch(socket_.get());
}

void QmpClient::on_readable() {
  std::array<char, 16384> chunk{};
  const ssize_t got = ::recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    close(Error{ErrorCode::kVmLost, "The hypervisor closed its control connection", {}, 0});
    return;
  }
  buffer_.append(chunk.data(), static_cast<std::size_t>(got));
  std::size_t start = 0;
  for (auto end = buffer_.find('\n'); end != std::string::npos && !closed_; end = buffer_.find('\n', start)) {
    on_line(std::string_view(buffer_).substr(start, end - start));
    start = end + 1;
  }
  buffer_.erase(0, start);
  if (buffer_.size() > kMaxQmpLine)
    close(Error{ErrorCode::kGuest, "The hypervisor sent an endless control message", {}, 0});
}

void QmpClient::on_line(std::string_view line) {
  if (line.find_first_not_of(" \r\t") == std::string_view::npos) return;
  auto message = parse_qmp(line);
  if (!message) {
    close(std::move(message).error());
    return;
  }
  switch (message->kind) {
    case QmpMessage::Kind::kGreeting:
      greeted_ = true;
      break;
    case QmpMessage::Kind::kEvent:
      on_event_(*message);
      break;
    case QmpMessage::Kind::kReturn:
    case QmpMessage::Kind::kError:
      // Only answers that somebody waits for are kept: the number of entries is ours, not the peer's.
      if (const std::string id = message->id; pending_.contains(id))
        answers_.insert_or_assign(id, *std::move(message));
      break;
  }
}

}  // namespace drupe
