#include "net/program/peer_message.h"

namespace drupe::net {
namespace {

std::unexpected<Error> malformed() {
  return fail(ErrorCode::kIntegrity, "A member of a private network sent a malformed message");
}

}  // namespace

std::string PeerMessage::encode() const {
  ByteWriter writer;
  writer.number(static_cast<std::uint8_t>(kind));
  if (kind != PeerMessageKind::kDatagram) writer.number(number);
  if (kind == PeerMessageKind::kEnd) writer.flag(own);
  if (kind == PeerMessageKind::kRefused) writer.flag(silent);
  if (kind == PeerMessageKind::kOpen || kind == PeerMessageKind::kDatagram)
    writer.number(source_port).number(destination_port);
  return writer.take() + (kind == PeerMessageKind::kDatagram ? payload : std::string());
}

Result<PeerMessage> PeerMessage::decode(ByteView bytes) {
  if (bytes.size() > kMaxPeerMessage) return malformed();
  ByteReader reader(bytes);
  PeerMessage m;
  const auto kind = reader.number<std::uint8_t>();
  if (kind < static_cast<std::uint8_t>(PeerMessageKind::kOpen) ||
      kind > static_cast<std::uint8_t>(PeerMessageKind::kDatagram))
    return malformed();
  m.kind = static_cast<PeerMessageKind>(kind);
  if (m.kind != PeerMessageKind::kDatagram) m.number = reader.number<std::uint32_t>();
  if (m.kind == PeerMessageKind::kEnd) m.own = reader.flag();
  if (m.kind == PeerMessageKind::kRefused) m.silent = reader.flag();
  if (m.kind == PeerMessageKind::kOpen || m.kind == PeerMessageKind::kDatagram) {
    m.source_port = reader.number<std::uint16_t>();
    m.destination_port = reader.number<std::uint16_t>();
    if (m.source_port == 0 || m.destination_port == 0) return malformed();
  }
  if (!reader.ok()) return malformed();
  if (m.kind == PeerMessageKind::kDatagram)
    m.payload = as_text(reader.rest());
  else if (!reader.done())
    return malformed();
  return m;
}

}  // namespace drupe::net
