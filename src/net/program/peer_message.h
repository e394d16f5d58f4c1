// What the network processes of two sandboxes in one private network tell each other.
//
// A channel is a SOCK_SEQPACKET socket between two of them, with one message in each packet. Its first
// message is an encoded PeerId (protocol/net_peers.h), written by the process that made the connection for
// one side: the other side takes from it whom it talks to. From then on both sides send what is here. A
// connection begins with kOpen, which brings one end of a pair of Unix stream sockets; bytes and their ends
// go through that pair.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace drupe::net {

enum class PeerMessageKind : std::uint8_t {
  kOpen = 1,     ///< number, ports, and a descriptor. Answered by kOpened or kRefused.
  kOpened = 2,   ///< number. The other guest has taken the connection.
  kRefused = 3,  ///< number, silent. Nothing listens there.
  kCancel = 4,   ///< number. The side that opens it waits for the answer no more.
  kEnd = 5,  ///< number, own. The sender's guest has ended its direction: the stream's end, which follows,
             ///< is one in order. A stream that ends without this was cut.
  kDatagram = 6,   ///< ports, payload.
  kUnheard = 7,    ///< ports. Of a datagram that came the other way: nothing listens at source_port.
  kEcho = 8,       ///< payload: an echo request's identifier, sequence number and data (RFC 792).
  kEchoReply = 9,  ///< payload: of the reply.
};

struct PeerMessage {
  PeerMessageKind kind = PeerMessageKind::kOpen;
  std::uint32_t number = 0;  ///< Of the connection; chosen by the side that opens it.
  bool own = false;          ///< kEnd: the sender of this message has opened it.
  bool silent = false;       ///< kRefused: the other guest did not answer.
  std::uint16_t source_port = 0,
                destination_port = 0;  ///< Of the sender's guest, of the receiver's; 1..65535.
  std::string payload;

  [[nodiscard]] std::string encode() const;
  /// Takes bytes as hostile.
  static Result<PeerMessage> decode(ByteView bytes);
  bool operator==(const PeerMessage&) const = default;
};

/// Longest message: a datagram of the largest link.
inline constexpr std::size_t kMaxPeerMessage = 65536;

}  // namespace drupe::net
