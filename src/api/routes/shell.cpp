// A login shell on a terminal over an upgraded connection: E94.
#include <algorithm>
#include <array>
#include <cerrno>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "api/routes/call.h"
#include "base/ids.h"
#include "engine/options.h"

namespace drupe::api {
namespace {

constexpr std::size_t kWindow = std::size_t{256} << 10;
constexpr std::size_t kStep = std::size_t{64} << 10;
/// Type and length of a frame.
constexpr std::size_t kHead = 5;
constexpr std::uint32_t kMostFrame = std::uint32_t{16} << 20;
constexpr unsigned kMostSize = 10'000;
/// A client that has said all may still read what its commands write; then the terminal goes.
constexpr std::chrono::minutes kAfterItsEnd{10};
constexpr std::chrono::seconds kSayAgain{1};
/// What a terminal takes for the end of its input.
constexpr char kEndOfInput = 4;

class Shell {
 public:
  Shell(EventLoop& loop, ShimClient& client) : loop_(loop), client_(client) {}
  ~Shell() {
    if (watched_ >= 0) loop_.unwatch(watched_);
    if (opened_ && !over_) client_.reset(stream_, "the client left");
  }

  Status open(const OpenRequest& request) {
    StreamHandler handler;
    handler.on_opened = [this](const OpenedReply&) { started_ = true; };
    handler.on_data = [this](Channel, std::string_view bytes) { to_client_.append(bytes); };
    handler.on_exit = [this](const ExitFacts& facts) {
      over_ = true;
      if (facts.error) error_ = facts.error;
    };
    handler.on_error = [this](const Error& error) {
      over_ = true;
      error_ = error;
    };
    handler.on_writable = [this] { guest_takes_ = true; };
    DRUPE_ASSIGN(stream_, client_.open(request, std::move(handler)));
    opened_ = true;
    client_.set_manual_credit(stream_);
    DRUPE_TRY(loop_.run_until([this] { return started_ || over_; }, Deadline::max()));
    if (over_ && error_) return std::unexpected(*error_);
    return {};
  }

  /// Until the shell has ended, or the client has left.
  Status serve(int fd, std::string early) {
    frames_ = std::move(early);
    DRUPE_TRY(loop_.watch(fd, 0, [this](std::uint32_t events) { ready_ |= events; }));
    watched_ = fd;
    Deadline limit = Deadline::max();
    while (true) {
      DRUPE_TRY(take_frames());
      feed();
      DRUPE_TRY(write_out(fd));
      if (over_ && to_client_.empty()) return {};
      if (client_ended_ && limit == Deadline::max()) limit = Clock::now() + kAfterItsEnd;
      std::uint32_t mask = to_client_.empty() ? 0U : EPOLLOUT;
      if (!client_ended_ && to_guest_.size() < kWindow) mask |= EPOLLIN;
      DRUPE_TRY(loop_.modify(fd, mask));
      ready_ = 0;
      const std::size_t before = to_client_.size();
      DRUPE_ASSIGN(const bool came, loop_.run_until(
                                        [&] {
                                          return ready_ != 0 || to_client_.size() != before || over_ ||
                                                 (guest_takes_ && !to_guest_.empty());
                                        },
                                        client_ended_ ? std::min(limit, Clock::now() + kSayAgain) : limit));
      if (!came && Clock::now() < limit) {
        // One that came while another program had the terminal may have been lost to the shell.
        to_guest_ += kEndOfInput;
        continue;
      }
      if (!came || (ready_ & (EPOLLERR | EPOLLHUP)) != 0) return {};
      if ((ready_ & EPOLLIN) != 0) DRUPE_TRY(read_in(fd));
    }
  }

 private:
  Status read_in(int fd) {
    std::array<char, kStep> part{};
    const auto got = ::recv(fd, part.data(), part.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return {};
    if (got < 0) return fail(ErrorCode::kCancelled, "The client left");
    if (got > 0) {
      frames_.append(part.data(), static_cast<std::size_t>(got));
      return {};
    }
    client_ended_ = true;
    to_guest_ += kEndOfInput;
    return {};
  }

  [[nodiscard]] std::uint32_t number(std::size_t at, std::size_t bytes) const {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i)
      value = value << 8 | static_cast<unsigned char>(frames_.at(at + i));
    return value;
  }

  /// Data goes on as it comes, whatever the length of its frame.
  Status take_frames() {
    while (!frames_.empty()) {
      if (data_left_ != 0) {
        const std::size_t part = std::min<std::size_t>(data_left_, frames_.size());
        to_guest_.append(frames_, 0, part);
        frames_.erase(0, part);
        data_left_ -= static_cast<std::uint32_t>(part);
        continue;
      }
      if (frames_.size() < kHead) return {};
      const auto type = static_cast<unsigned char>(frames_.front());
      const std::uint32_t length = number(1, 4);
      if (type == 0 && length <= kMostFrame) {
        data_left_ = length;
        frames_.erase(0, kHead);
      } else if (type == 1 && length == 4) {
        if (frames_.size() < kHead + length) return {};
        resize(number(kHead, 2), number(kHead + 2, 2));
        frames_.erase(0, kHead + length);
      } else {
        return fail(ErrorCode::kInvalidArgument, "The client sent what is no frame of a shell");
      }
    }
    return {};
  }

  void resize(std::uint32_t rows, std::uint32_t columns) {
    if (over_ || rows == 0 || columns == 0 || rows > kMostSize || columns > kMostSize) return;
    client_.resize(stream_, static_cast<std::uint16_t>(rows), static_cast<std::uint16_t>(columns));
  }

  void feed() {
    if (over_) to_guest_.clear();
    guest_takes_ = false;
    if (!to_guest_.empty()) to_guest_.erase(0, client_.write(stream_, to_guest_));
  }

  Status write_out(int fd) {
    while (!to_client_.empty()) {
      const auto sent = ::send(fd, to_client_.data(), to_client_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
      if (sent < 0) return fail(ErrorCode::kCancelled, "The client left");
      to_client_.erase(0, static_cast<std::size_t>(sent));
      if (!over_) client_.take(stream_, Channel::kStdout, static_cast<std::uint32_t>(sent));
    }
    return {};
  }

  EventLoop& loop_;
  ShimClient& client_;
  ShimClient::StreamId stream_ = 0;
  int watched_ = -1;
  std::uint32_t ready_ = 0, data_left_ = 0;
  std::string frames_;  ///< Of the client, not yet understood.
  std::string to_guest_, to_client_;
  bool opened_ = false, started_ = false, over_ = false, client_ended_ = false, guest_takes_ = true;
  std::optional<Error> error_;
};

OpenRequest login_shell(const SandboxRow& row) {
  OpenRequest request;
  ExecOptions& exec = request.exec;
  exec.exec_id = random_id();
  exec.argv = {"/bin/sh", "-c", "[ -x /bin/bash ] && exec /bin/bash -l; exec /bin/sh -l"};
  exec.tty = exec.stdin_open = true;
  std::vector<std::string> own;
  for (const auto& [name, value] : row.envs) own.push_back(name + "=" + value);
  exec.env = merge_env({"TERM=xterm-256color"}, own);
  return request;
}

Answer<Data> shell(Call& call) {
  if (!call.exchange.head().header_has("upgrade", "tcp-tunnel"))
    return refuse(400, "invalid_argument", "this address needs Upgrade: tcp-tunnel");
  API_ASSIGN(auto access, call.services.sandboxes.access(call.caller.id, call.sandbox(), "opening a shell"));
  Shell session(access.engine->loop(), *access.client);
  API_TRY(session.open(login_shell(access.row)));
  call.services.metrics.count_exec("shell");
  API_TRY(call.exchange.switch_protocols("tcp-tunnel"));
  static_cast<void>(session.serve(call.exchange.fd(), call.exchange.take_early_bytes()));
  return std::nullopt;
}

}  // namespace

std::vector<Route> shell_routes() {
  return {{"POST", "/v1/sandboxes/:id/shell", shell}};
}

}  // namespace drupe::api
