// Who decides where a guest's connections lead, and looks at what they carry.
#pragma once

#include <cstdint>
#include <memory>

#include "base/unique_fd.h"
#include "net/stack/tcp_types.h"

namespace drupe::net {

/// Looks at every byte of one connection from the guest, before it is forwarded. The bytes it sees are the
/// bytes that go out: in order, once, never changed by what the guest sends later.
class Inspector {
 public:
  struct Verdict {
    std::size_t pass = 0;   ///< Bytes from the front of `pending` that may go now.
    bool refuse = false;    ///< Reset the connection; nothing of `pending` goes.
    bool finished = false;  ///< Everything from here on may go unseen; look() is not called again.
  };
  virtual ~Inspector() = default;
  /// `pending` begins with the first byte that was not let pass and grows from call to call. `end`: the guest
  /// sends no more. Whoever passes nothing of a full buffer, or not everything at the end, refuses.
  virtual Verdict look(ByteView pending, bool end) = 0;

  /// Bytes of the world may reach the guest before the first byte of the guest passed.
  [[nodiscard]] virtual bool world_may_speak_first() const { return false; }
  /// The world's next bytes are to be shown to on_world() before they go to the guest.
  [[nodiscard]] virtual bool wants_world() const { return false; }
  /// False: reset the connection. Bytes that look() holds are looked at again afterwards.
  virtual bool on_world(ByteView /*bytes*/) { return true; }
};

/// A service of the program itself behind connections of the guest: ConnectVerdict::Action::kLocal.
/// Both are called from within the stack, so it answers with HostTcp::send_local() and finish_local() and
/// ends a flow only later. Gate::on_gone() ends every flow.
class LocalService {
 public:
  virtual ~LocalService() = default;
  /// In order, once.
  virtual void on_local_bytes(FlowId flow, ByteView bytes) = 0;
  /// The guest sends no more.
  virtual void on_local_end(FlowId flow) = 0;
};

/// What becomes of a guest's SYN.
struct ConnectVerdict {
  enum class Action : std::uint8_t { kConnect, kRefuse, kUnreachable, kLocal };
  Action action = Action::kRefuse;
  LocalService* local = nullptr;               ///< kLocal; lives longer than the flow.
  Unreachable why = Unreachable::kProhibited;  ///< kUnreachable.
  PacketAddress address;                       ///< kConnect: where to; need not be what the guest asked for.
  std::uint16_t port = 0;
  /// kConnect: a stream socket that is connected already; then address and port are not used.
  UniqueFd socket;
  bool peer = false;  ///< With `socket`: as HostTcp::connect_guest().
  /// Bytes of the world are held as well until the first byte of the guest passed, unless
  /// world_may_speak_first(). None: bytes pass unseen.
  std::unique_ptr<Inspector> inspector;
  /// With an inspector: the guest's handshake is completed first, and the world is connected to when the
  /// first byte passes. Then a connection that fails is a reset for the guest, not a refusal.
  bool inspect_first = false;
};

enum class FlowEnd : std::uint8_t {
  kDone,           ///< Both directions ended.
  kGuestReset,     ///< The guest sent RST.
  kGuestSilent,    ///< The guest does not answer.
  kWorldReset,     ///< The peer in the world did.
  kConnectFailed,  ///< The world could not be reached; sys_errno says why.
  kRefused,        ///< By verdict, inspector or HostTcp::refuse().
};

struct FlowReport {
  FlowEnd end = FlowEnd::kDone;
  int sys_errno = 0;
  std::uint64_t to_world = 0, to_guest = 0;  ///< Bytes.
};

class Gate {
 public:
  virtual ~Gate() = default;
  /// Decide with HostTcp::decide(), now or later; nothing is answered before.
  virtual void on_connect(FlowId flow, const FlowKey& key) = 0;
  /// After it `flow` means nothing. Every flow of on_connect() ends with it, and every flow of
  /// HostTcp::connect_guest() that was established.
  virtual void on_gone(FlowId flow, const FlowReport& report) = 0;
  /// connect_guest() did not succeed; the socket comes back, so that it can be tried again.
  virtual void on_guest_refused(FlowId flow, CloseReason reason, UniqueFd socket) = 0;
  /// connect_guest() has succeeded.
  virtual void on_guest_accepted(FlowId /*flow*/) {}

  /// For flows whose socket is a peer's, which has no reset: an end in order is told in another way, and
  /// every other end is none. The guest has ended its direction, and all of it is in `socket`, which stays
  /// the caller's: tell the peer, then shut its sending side down.
  virtual void end_peer(FlowId /*flow*/, int /*socket*/) {}
  /// The peer's bytes have ended. Whether in order; the guest sees a reset otherwise.
  virtual bool peer_ended_well(FlowId /*flow*/) { return false; }
};

/// What becomes of a new UDP flow.
struct UdpVerdict {
  enum class Action : std::uint8_t {
    kConnect,
    kRefuse,  ///< ICMP `why`.
    kDrop,    ///< No answer.
    kLocal,   ///< Datagrams go to UdpGate::on_local().
  };
  Action action = Action::kRefuse;
  Unreachable why = Unreachable::kPort;
  PacketAddress address;
  std::uint16_t port = 0;
};

class UdpGate {
 public:
  virtual ~UdpGate() = default;
  virtual UdpVerdict on_flow(FlowId flow, const FlowKey& key, ByteView first) = 0;
  /// A datagram for the program itself (its resolver); answered with HostUdp::send_local().
  virtual void on_local(FlowId flow, const FlowKey& key, ByteView payload) = 0;
  /// A flow of kConnect or kLocal is gone; bytes of payload.
  virtual void on_udp_gone(FlowId flow, std::uint64_t to_world, std::uint64_t to_guest) = 0;
};

}  // namespace drupe::net
