#include "protocol/net_peers.h"

namespace drupe::net {
namespace {

std::unexpected<Error> malformed() {
  return fail(ErrorCode::kIntegrity, "A malformed message about private networks");
}

void append(ByteWriter& writer, const PeerId& peer) {
  writer.text(peer.network).text(peer.sandbox);
}

PeerId read_peer(ByteReader& reader) {
  PeerId peer;
  peer.network = reader.text();
  peer.sandbox = reader.text();
  return peer;
}

}  // namespace

void append_networks(ByteWriter& writer, const std::vector<PeerNetwork>& networks) {
  writer.number(static_cast<std::uint32_t>(networks.size()));
  for (const PeerNetwork& network : networks) {
    writer.text(network.id).text(network.name);
    writer.number(static_cast<std::uint32_t>(network.members.size()));
    for (const PeerMember& member : network.members)
      writer.text(member.sandbox).text(member.name).text(member.address).texts(member.aliases);
  }
}

std::vector<PeerNetwork> read_networks(ByteReader& reader) {
  std::vector<PeerNetwork> networks;
  const auto count = reader.number<std::uint32_t>();
  // Too many are left unread, and then the message does not end where it should.
  for (std::uint32_t i = 0; i < count && i < kMaxNetworks && reader.ok(); ++i) {
    PeerNetwork network;
    network.id = reader.text();
    network.name = reader.text();
    const auto members = reader.number<std::uint32_t>();
    for (std::uint32_t j = 0; j < members && j < kMaxMembers && reader.ok(); ++j) {
      PeerMember member;
      member.sandbox = reader.text();
      member.name = reader.text();
      member.address = reader.text();
      const auto aliases = reader.number<std::uint32_t>();
      for (std::uint32_t k = 0; k < aliases && k < kMaxAliases && reader.ok(); ++k)
        member.aliases.push_back(reader.text());
      network.members.push_back(std::move(member));
      if (aliases > kMaxAliases) return networks;
    }
    networks.push_back(std::move(network));
    if (members > kMaxMembers) break;
  }
  return networks;
}

std::string SetNetworks::encode() const {
  ByteWriter writer;
  append_networks(writer, networks);
  return writer.take();
}

Result<SetNetworks> SetNetworks::decode(ByteView bytes) {
  ByteReader reader(bytes);
  SetNetworks m;
  m.networks = read_networks(reader);
  if (!reader.done()) return malformed();
  return m;
}

std::string PeerId::encode() const {
  ByteWriter writer;
  append(writer, *this);
  return writer.take();
}

Result<PeerId> PeerId::decode(ByteView bytes) {
  if (bytes.size() > kMaxPeerId) return malformed();
  ByteReader reader(bytes);
  PeerId peer = read_peer(reader);
  if (!reader.done()) return malformed();
  return peer;
}

std::string PeerChannelGrant::encode() const {
  ByteWriter writer;
  append(writer, peer);
  writer.flag(connected);
  return writer.take();
}

Result<PeerChannelGrant> PeerChannelGrant::decode(ByteView bytes) {
  ByteReader reader(bytes);
  PeerChannelGrant m;
  m.peer = read_peer(reader);
  m.connected = reader.flag();
  if (!reader.done()) return malformed();
  return m;
}

}  // namespace drupe::net
