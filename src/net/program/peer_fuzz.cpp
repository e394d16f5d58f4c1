// Messages of another sandbox's network process, and what is said first on a channel: what is understood is
// written back as it was, and within its bounds.
#include <cstdlib>

#include "net/program/peer_message.h"
#include "protocol/net_peers.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace drupe;
  using namespace drupe::net;
  const ByteView bytes(data, size);
  if (const auto message = PeerMessage::decode(bytes)) {
    if (message->encode() != as_text(bytes)) std::abort();
    const bool has_ports = message->kind == PeerMessageKind::kOpen ||
                           message->kind == PeerMessageKind::kDatagram ||
                           message->kind == PeerMessageKind::kUnheard;
    if (has_ports && (message->source_port == 0 || message->destination_port == 0)) std::abort();
  }
  if (const auto peer = PeerId::decode(bytes); peer && peer->encode() != as_text(bytes)) std::abort();
  if (const auto grant = PeerChannelGrant::decode(bytes); grant && grant->encode() != as_text(bytes))
    std::abort();
  if (const auto set = SetNetworks::decode(bytes)) {
    if (set->encode() != as_text(bytes) || set->networks.size() > kMaxNetworks) std::abort();
    for (const auto& network : set->networks)
      if (network.members.size() > kMaxMembers) std::abort();
  }
  return 0;
}
