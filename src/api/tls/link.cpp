#include "api/tls/link.h"

#include <array>
#include <cerrno>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <openssl/err.h>

namespace drupe::api {
namespace {

constexpr std::size_t kWindow = std::size_t{64} << 10;
constexpr std::size_t kStep = std::size_t{16} << 10;
constexpr std::chrono::seconds kHandshakeLimit{15};

}  // namespace

Result<std::unique_ptr<TlsLink>> TlsLink::create(EventLoop& loop, SSL_CTX& context, UniqueFd tcp,
                                                 UniqueFd plain, std::function<void()> over) {
  std::unique_ptr<TlsLink> link(new TlsLink(loop, std::move(tcp), std::move(plain), std::move(over)));
  link->ssl_.reset(SSL_new(&context));
  if (!link->ssl_ || SSL_set_fd(link->ssl_.get(), link->tcp_.get()) != 1)
    return fail(ErrorCode::kHost, "A connection cannot be given to libssl");
  TlsLink* const self = link.get();
  DRUPE_TRY(loop.watch(self->tcp_.get(), EPOLLIN, [self](std::uint32_t events) {
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) return self->end();
    self->work();
  }));
  DRUPE_TRY(loop.watch(self->plain_.get(), EPOLLIN, [self](std::uint32_t events) {
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
      self->plain_gone_ = true;
      self->loop_.unwatch(self->plain_.get());
    }
    self->work();
  }));
  self->handshake_ = loop.after(kHandshakeLimit, [self] {
    if (!self->shaken_) self->end();
  });
  return link;
}

TlsLink::~TlsLink() {
  loop_.cancel(handshake_);
  if (tcp_.valid()) loop_.unwatch(tcp_.get());
  if (plain_.valid() && !plain_gone_) loop_.unwatch(plain_.get());
}

void TlsLink::end() {
  if (std::exchange(ended_, true)) return;
  loop_.unwatch(tcp_.get());
  over_();
}

TlsLink::Turn TlsLink::turn_of(int result) {
  if (result > 0) return Turn::kMoved;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return Turn::kWaits;
    case SSL_ERROR_WANT_WRITE:
      wants_write_ = true;
      return Turn::kWaits;
    case SSL_ERROR_ZERO_RETURN:
      return Turn::kEnded;
    default:
      return Turn::kBroken;
  }
}

bool TlsLink::from_client(bool& moved) {
  std::array<char, kStep> part{};
  while (!client_ended_ && to_plain_.size() < kWindow) {
    ERR_clear_error();
    const int got = SSL_read(ssl_.get(), part.data(), static_cast<int>(part.size()));
    const Turn turn = turn_of(got);
    if (turn == Turn::kBroken) return false;
    if (turn == Turn::kWaits) break;
    moved = true;
    if (turn == Turn::kEnded)
      client_ended_ = true;
    else
      to_plain_.append(part.data(), static_cast<std::size_t>(got));
  }
  return true;
}

bool TlsLink::to_client(bool& moved) {
  while (!to_client_.empty()) {
    ERR_clear_error();
    const int sent = SSL_write(ssl_.get(), to_client_.data(), static_cast<int>(to_client_.size()));
    const Turn turn = turn_of(sent);
    if (turn == Turn::kBroken || turn == Turn::kEnded) return false;
    if (turn == Turn::kWaits) return true;
    moved = true;
    to_client_.erase(0, static_cast<std::size_t>(sent));
  }
  if (plain_ended_ && !told_client_) {
    ERR_clear_error();
    const int told = SSL_shutdown(ssl_.get());
    if (told < 0 && turn_of(told) == Turn::kBroken) return false;
    told_client_ = told >= 0;
  }
  return true;
}

void TlsLink::from_plain(bool& moved) {
  std::array<char, kStep> part{};
  while (!plain_ended_ && to_client_.size() < kWindow) {
    const auto got = ::recv(plain_.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    moved = true;
    plain_ended_ = got <= 0;
    if (got > 0) to_client_.append(part.data(), static_cast<std::size_t>(got));
  }
}

void TlsLink::to_plain(bool& moved) {
  while (!to_plain_.empty()) {
    const auto sent = ::send(plain_.get(), to_plain_.data(), to_plain_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    moved = true;
    // The server has closed its end and wants no more.
    to_plain_.erase(0, sent < 0 ? to_plain_.size() : static_cast<std::size_t>(sent));
  }
  if (client_ended_ && !std::exchange(told_plain_, true)) ::shutdown(plain_.get(), SHUT_WR);
}

bool TlsLink::step() {
  bool moved = true;
  while (moved) {
    moved = false;
    wants_write_ = false;
    if (!shaken_) {
      ERR_clear_error();
      const Turn turn = turn_of(SSL_accept(ssl_.get()));
      if (turn == Turn::kBroken || turn == Turn::kEnded || plain_gone_) return false;
      if (turn == Turn::kWaits) return true;
      shaken_ = true;
    }
    if (!from_client(moved)) return false;
    to_plain(moved);
    from_plain(moved);
    if (!to_client(moved)) return false;
  }
  return !(told_client_ && (plain_gone_ || (client_ended_ && to_plain_.empty())));
}

void TlsLink::work() {
  if (ended_) return;
  if (!step()) return end();
  std::uint32_t mask = wants_write_ ? EPOLLOUT : 0U;
  if (!shaken_ || (!client_ended_ && to_plain_.size() < kWindow)) mask |= EPOLLIN;
  if (!loop_.modify(tcp_.get(), mask)) return end();
  if (plain_gone_) return;
  mask = to_plain_.empty() ? 0U : EPOLLOUT;
  if (shaken_ && !plain_ended_ && to_client_.size() < kWindow) mask |= EPOLLIN;
  if (!loop_.modify(plain_.get(), mask)) end();
}

}  // namespace drupe::api
