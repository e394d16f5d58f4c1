// A channel to the network process of another sandbox: packets out in order, packets in with a bound.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/event_loop.h"
#include "net/program/peer_message.h"

namespace drupe::net {

/// Owns the socket. What comes is from somebody who may be hostile. One thread, that of `loop`.
class PeerChannel {
 public:
  /// `on_packet` gets the bytes and at most one descriptor; false: the channel is of no more use. It may call
  /// every function here. `on_closed` comes once, from the loop, never from within a call; the channel may be
  /// destroyed there.
  using OnPacket = std::function<bool(ByteView bytes, UniqueFd passed)>;
  using OnClosed = std::function<void()>;
  PeerChannel(EventLoop& loop, UniqueFd socket, OnPacket on_packet, OnClosed on_closed);
  ~PeerChannel();
  PeerChannel(const PeerChannel&) = delete;
  PeerChannel& operator=(const PeerChannel&) = delete;

  Status start();
  /// In order. `pass` goes with it; the sending side of `then_shut`, which is a copy, is shut down when it is
  /// on its way. A peer that leaves more than
  /// kMaxQueued unread is given up.
  void send(const PeerMessage& message, UniqueFd pass = {}, UniqueFd then_shut = {});
  /// Lost when the socket is full.
  void send_datagram(const PeerMessage& message);
  /// Reads all that has come by now, kMaxDrained at most.
  void drain();
  [[nodiscard]] bool closed() const { return closed_; }
  /// Closes it; nothing is called any more.
  void abandon();

  static constexpr std::size_t kMaxQueued = 4096;
  static constexpr int kPacketsPerTurn = 64;
  static constexpr int kMaxDrained = 4096;

 private:
  struct Queued {
    std::string bytes;
    UniqueFd pass, then_shut;
  };
  void on_socket(std::uint32_t events);
  /// False: nothing is there now, or nothing comes any more.
  bool read_one();
  void write();
  void close();
  void shut();

  EventLoop& loop_;
  UniqueFd socket_;
  OnPacket on_packet_;
  OnClosed on_closed_;
  std::deque<Queued> out_;
  std::string buffer_;
  bool closed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

/// A Unix stream socket that is connected: what kOpen has to bring.
[[nodiscard]] bool is_peer_stream(int fd);

}  // namespace drupe::net
