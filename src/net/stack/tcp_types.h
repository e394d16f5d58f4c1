// What the TCP side tells its user.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "net/stack/packet_address.h"

namespace drupe::net {

enum class CloseReason : std::uint8_t {
  kDone,      ///< Both directions ended in order.
  kReset,     ///< The guest sent RST.
  kTimedOut,  ///< The guest does not answer.
  kRefused,   ///< open(): nothing listens on that port of the guest.
};

/// What a guest is told when its SYN or datagram leads nowhere; as errno there: ENETUNREACH, EHOSTUNREACH,
/// EHOSTUNREACH (IPv6: EACCES), ECONNREFUSED.
enum class Unreachable : std::uint8_t { kNetwork, kHost, kProhibited, kPort };

/// Callbacks of the TCP side. They run inside TcpLayer::input(), flush() and advance(), never inside a call
/// of its user, and may call every function of TcpLayer but those three.
class TcpHandler {
 public:
  virtual ~TcpHandler() = default;
  /// The guest wants to connect. Nothing is answered until accept(), refuse() or unreachable(), now or later.
  virtual void on_connect(FlowId flow, const FlowKey& key) = 0;
  /// After accept() or open(): the guest's side is complete.
  virtual void on_established(FlowId flow) = 0;
  /// Bytes in order while none are stored. Returns how many are taken; the rest is stored and is readable().
  virtual std::size_t on_data(FlowId flow, ByteView bytes) = 0;
  /// More bytes are stored than before, or TcpLayer::ended() has become true while some are.
  virtual void on_readable(FlowId flow) = 0;
  /// The guest ended its direction, and every byte of it was taken.
  virtual void on_eof(FlowId flow) = 0;
  /// There is room again after write_room() was used up.
  virtual void on_writable(FlowId flow) = 0;
  /// The flow is gone; `flow` means nothing from now on. Not called after abort(), refuse(), unreachable().
  virtual void on_closed(FlowId flow, CloseReason reason) = 0;
};

}  // namespace drupe::net
