#include "net/program/peer_message.h"

namespace drupe::net {
namespace {

std::unexpected<Error> malformed() {
  return fail(ErrorCode::kIntegrity, "A member of a private network sent a malformed message");
}

constexpr std::size_t kEchoHead = 4;

bool has_payload(PeerMessageKind kind) {
  return kind == PeerMessageKind::kDatagram || kind == PeerMessageKind::kEcho ||
         kind == PeerMessageKind::kEchoReply;
}
bool has_ports(PeerMessageKind kind) {
  return kind == PeerMessageKind::kOpen || kind == PeerMessageKind::kDatagram ||
         kind == PeerMessageKind::kUnheard;
}
bool of_connection(PeerMessageKind kind) {
  return kind < PeerMessageKind::kDatagram;
}

}  // namespace

std::string PeerMessage::encode() const {
  ByteWriter writer;
  writer.number(static_cast<std::uint8_t>(kind));
  if (of_connection(kind)) writer.number(number);
  if (kind == PeerMessageKind::kEnd) writer.flag(own);
  if (kind == PeerMessageKind::kRefused) writer.flag(silent);
  if (has_ports(kind)) writer.number(source_port).number(destination_port);
  return writer.take() + (has_payload(kind) ? payload : std::string());
}

Result<PeerMessage> PeerMessage::decode(ByteView bytes) {
  if (bytes.size() > kMaxPeerMessage) return malformed();
  ByteReader reader(bytes);
  PeerMessage m;
  const auto kind = reader.number<std::uint8_t>();
  if (kind < static_cast<std::uint8_t>(PeerMessageKind::kOpen) ||
      kind > static_cast<std::uint8_t>(PeerMessageKind::kEchoReply))
    return malformed();
  m.kind = static_cast<PeerMessageKind>(kind);
  if (of_connection(m.kind)) m.number = reader.number<std::uint32_t>();
  if (m.kind == PeerMessageKind::kEnd) m.own = reader.flag();
  if (m.kind == PeerMessageKind::kRefused) m.silent = reader.flag();
  if (has_ports(m.kind)) {
    m.source_port = reader.number<std::uint16_t>();
    m.destination_port = reader.number<std::uint16_t>();
    if (m.source_port == 0 || m.destination_port == 0) return malformed();
  }
  if (!reader.ok()) return malformed();
  if (has_payload(m.kind))
    m.payload = as_text(reader.rest());
  else if (!reader.done())
    return malformed();
  const bool echo = m.kind == PeerMessageKind::kEcho || m.kind == PeerMessageKind::kEchoReply;
  if (echo && m.payload.size() < kEchoHead) return malformed();
  return m;
}

}  // namespace drupe::net
