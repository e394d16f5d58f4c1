#include "api/routes/pump.h"

#include <array>
#include <cerrno>

#include <sys/epoll.h>
#include <sys/socket.h>

namespace drupe::api {
namespace {

constexpr std::chrono::seconds kOpenLimit{30};
constexpr std::size_t kWindow = std::size_t{256} << 10;
constexpr std::size_t kStep = std::size_t{64} << 10;

class Port final : public GuestPort {
 public:
  Port(EventLoop& loop, ShimClient& client) : loop_(loop), client_(client) {}
  ~Port() override {
    if (watched_ >= 0) loop_.unwatch(watched_);
    if (!over_) client_.reset(stream_, "the client left");
  }

  Status open(std::uint16_t port) {
    OpenRequest request;
    request.kind = OpenKind::kTunnel;
    request.file.port = port;
    StreamHandler handler;
    handler.on_opened = [this](const OpenedReply&) { opened_ = true; };
    handler.on_data = [this](Channel, std::string_view bytes) {
      opened_ = true;
      to_client_.append(bytes);
    };
    handler.on_eof = [this](Channel) { guest_ended_ = true; };
    handler.on_exit = [this](const ExitFacts& facts) {
      over_ = guest_ended_ = true;
      if (facts.error) error_ = facts.error;
    };
    handler.on_error = [this](const Error& error) {
      over_ = guest_ended_ = true;
      error_ = error;
    };
    handler.on_writable = [this] { guest_takes_ = true; };
    DRUPE_ASSIGN(stream_, client_.open(request, std::move(handler)));
    client_.set_manual_credit(stream_);
    DRUPE_ASSIGN(const bool came,
                 loop_.run_until([this] { return opened_ || over_; }, Clock::now() + kOpenLimit));
    if (!came) return fail(ErrorCode::kUnavailable, "the sandbox's port does not answer");
    if (over_ && error_)
      return fail(ErrorCode::kUnavailable,
                  "nothing listens on port " + std::to_string(port) + " in the sandbox");
    return {};
  }

  Status pump(int fd, std::string first, std::string early) override {
    to_guest_ = std::move(first) + std::move(early);
    DRUPE_TRY(loop_.watch(fd, 0, [this](std::uint32_t events) { ready_ |= events; }));
    watched_ = fd;
    while (!finished()) {
      DRUPE_TRY(exchange_with_guest());
      DRUPE_TRY(exchange_with_client(fd));
      if (finished()) break;
      std::uint32_t mask = 0;
      if (!client_ended_ && to_guest_.size() < kWindow) mask |= EPOLLIN;
      if (!to_client_.empty()) mask |= EPOLLOUT;
      DRUPE_TRY(loop_.modify(fd, mask));
      ready_ = 0;
      const std::size_t before = to_client_.size();
      const bool was_over = guest_ended_;
      DRUPE_TRY(loop_.run_until(
          [&] {
            return ready_ != 0 || to_client_.size() != before || guest_ended_ != was_over ||
                   (guest_takes_ && !to_guest_.empty());
          },
          Deadline::max()));
      // Its whole connection is gone: nobody is left to take anything.
      if ((ready_ & (EPOLLERR | EPOLLHUP)) != 0) return {};
    }
    if (refused()) return fail(ErrorCode::kUnavailable, error_->message);
    return {};
  }

 private:
  [[nodiscard]] bool refused() const { return error_ && !sent_any_; }
  [[nodiscard]] bool finished() const {
    return guest_ended_ && to_client_.empty() && (client_ended_ || over_);
  }

  Status exchange_with_guest() {
    if (over_) {
      to_guest_.clear();
      return {};
    }
    guest_takes_ = false;
    to_guest_.erase(0, client_.write(stream_, to_guest_));
    if (client_ended_ && to_guest_.empty() && !eof_sent_) {
      eof_sent_ = true;
      client_.close_stdin(stream_);
    }
    return {};
  }

  Status exchange_with_client(int fd) {
    while (!to_client_.empty()) {
      const auto sent = ::send(fd, to_client_.data(), to_client_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (sent < 0) return fail(ErrorCode::kCancelled, "The client left");
      sent_any_ = true;
      to_client_.erase(0, static_cast<std::size_t>(sent));
      if (!over_) client_.take(stream_, Channel::kStdout, static_cast<std::uint32_t>(sent));
    }
    if (guest_ended_ && to_client_.empty() && !told_client_ && !refused()) {
      told_client_ = true;
      ::shutdown(fd, SHUT_WR);
    }
    std::array<char, kStep> part{};
    while (!client_ended_ && to_guest_.size() < kWindow) {
      const auto got = ::recv(fd, part.data(), part.size(), MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (got < 0) return fail(ErrorCode::kCancelled, "The client left");
      client_ended_ = got == 0;
      to_guest_.append(part.data(), static_cast<std::size_t>(got));
    }
    if (!to_guest_.empty() || client_ended_) return exchange_with_guest();
    return {};
  }

  EventLoop& loop_;
  ShimClient& client_;
  ShimClient::StreamId stream_ = 0;
  int watched_ = -1;
  std::uint32_t ready_ = 0;
  std::string to_guest_, to_client_;
  bool opened_ = false, over_ = false, guest_ended_ = false, guest_takes_ = true, client_ended_ = false,
       eof_sent_ = false, told_client_ = false, sent_any_ = false;
  std::optional<Error> error_;
};

}  // namespace

Result<std::unique_ptr<GuestPort>> GuestPort::open(Sandboxes::Access& access, std::uint16_t port) {
  auto made = std::make_unique<Port>(access.engine->loop(), *access.client);
  DRUPE_TRY(made->open(port));
  return made;
}

}  // namespace drupe::api
