// One connection of the TLS front: a client's socket, and the plain one behind it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <openssl/ssl.h>

#include "base/event_loop.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe::api {

/// On its loop's thread only. Calls `over` once, when nothing is left to be done; it may be destroyed then.
class TlsLink {
 public:
  static Result<std::unique_ptr<TlsLink>> create(EventLoop& loop, SSL_CTX& context, UniqueFd tcp,
                                                 UniqueFd plain, std::function<void()> over);
  ~TlsLink();
  TlsLink(const TlsLink&) = delete;
  TlsLink& operator=(const TlsLink&) = delete;

 private:
  struct SslCloser {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  /// What a call of libssl came to.
  enum class Turn : std::uint8_t { kMoved, kWaits, kEnded, kBroken };

  TlsLink(EventLoop& loop, UniqueFd tcp, UniqueFd plain, std::function<void()> over)
      : loop_(loop), tcp_(std::move(tcp)), plain_(std::move(plain)), over_(std::move(over)) {}
  void work();
  /// Everything that can be done now; false when the connection is over.
  bool step();
  Turn turn_of(int result);
  bool from_client(bool& moved);
  bool to_client(bool& moved);
  void from_plain(bool& moved);
  void to_plain(bool& moved);
  void end();

  EventLoop& loop_;
  UniqueFd tcp_, plain_;
  std::function<void()> over_;
  std::unique_ptr<SSL, SslCloser> ssl_;
  std::string to_plain_, to_client_;
  bool shaken_ = false, ended_ = false;
  bool client_ended_ = false, plain_ended_ = false;  ///< Nothing more comes from there.
  bool told_plain_ = false, told_client_ = false;    ///< That nothing more comes from the other side.
  bool plain_gone_ = false;                          ///< The server has closed its end, and is not watched.
  bool wants_write_ = false;
  EventLoop::TimerId handshake_ = 0;
};

}  // namespace drupe::api
