#include "protocol/net_control.h"

namespace drupe::net {
namespace {

constexpr std::size_t kMaxPublications = 256;

std::unexpected<Error> malformed(const char* what) {
  return fail(ErrorCode::kIntegrity, std::string("A malformed message to the network process: ") + what);
}

}  // namespace

std::string NetConfig::encode() const {
  ByteWriter writer;
  for (const std::uint8_t byte : mac) writer.number(byte);
  writer.number(mtu).text(guest_v4).text(gateway_v4).text(guest_v6).text(gateway_v6);
  writer.texts(resolvers).texts(search).text(policy);
  writer.number(static_cast<std::uint32_t>(publications.size()));
  for (const auto& one : publications) writer.text(one.address).number(one.host_port).number(one.guest_port);
  writer.number(quota_bytes).number(used_bytes).text(flows).flag(ledger);
  append_networks(writer, networks);
  return writer.take();
}

Result<NetConfig> NetConfig::decode(ByteView bytes) {
  ByteReader reader(bytes);
  NetConfig m;
  for (std::uint8_t& byte : m.mac) byte = reader.number<std::uint8_t>();
  m.mtu = reader.number<std::uint32_t>();
  m.guest_v4 = reader.text();
  m.gateway_v4 = reader.text();
  m.guest_v6 = reader.text();
  m.gateway_v6 = reader.text();
  m.resolvers = reader.texts();
  m.search = reader.texts();
  m.policy = reader.text();
  const auto count = reader.number<std::uint32_t>();
  if (count > kMaxPublications) return malformed("configuration");
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    Publication one;
    one.address = reader.text();
    one.host_port = reader.number<std::uint16_t>();
    one.guest_port = reader.number<std::uint16_t>();
    m.publications.push_back(std::move(one));
  }
  m.quota_bytes = reader.number<std::uint64_t>();
  m.used_bytes = reader.number<std::uint64_t>();
  m.flows = reader.text();
  m.ledger = reader.flag();
  m.networks = read_networks(reader);
  if (!reader.done()) return malformed("configuration");
  return m;
}

std::string NetReady::encode() const {
  return ByteWriter().texts(confinement_missing).take();
}

Result<NetReady> NetReady::decode(ByteView bytes) {
  ByteReader reader(bytes);
  NetReady m;
  m.confinement_missing = reader.texts();
  if (!reader.done()) return malformed("answer to a configuration");
  return m;
}

std::string SetPolicy::encode() const {
  return ByteWriter().text(policy).number(quota_bytes).flag(unpublish).take();
}

Result<SetPolicy> SetPolicy::decode(ByteView bytes) {
  ByteReader reader(bytes);
  SetPolicy m;
  m.policy = reader.text();
  m.quota_bytes = reader.number<std::uint64_t>();
  m.unpublish = reader.flag();
  if (!reader.done()) return malformed("policy");
  return m;
}

std::string SetResolvers::encode() const {
  return ByteWriter().texts(resolvers).take();
}

Result<SetResolvers> SetResolvers::decode(ByteView bytes) {
  ByteReader reader(bytes);
  SetResolvers m;
  m.resolvers = reader.texts();
  if (!reader.done()) return malformed("list of resolvers");
  return m;
}

std::string ReadLog::encode() const {
  return ByteWriter().number(after).number(limit).take();
}

Result<ReadLog> ReadLog::decode(ByteView bytes) {
  ByteReader reader(bytes);
  ReadLog m;
  m.after = reader.number<std::uint64_t>();
  m.limit = reader.number<std::uint32_t>();
  if (!reader.done()) return malformed("log request");
  return m;
}

std::string LogPage::encode() const {
  return ByteWriter().texts(lines).number(last).number(lost).take();
}

Result<LogPage> LogPage::decode(ByteView bytes) {
  ByteReader reader(bytes);
  LogPage m;
  m.lines = reader.texts();
  m.last = reader.number<std::uint64_t>();
  m.lost = reader.number<std::uint64_t>();
  if (!reader.done()) return malformed("log");
  return m;
}

std::string NetCounters::encode() const {
  ByteWriter writer;
  for (const std::uint64_t one :
       {bytes_out, bytes_in, connections, refused, open_connections, dropped_frames})
    writer.number(one);
  return writer.take();
}

Result<NetCounters> NetCounters::decode(ByteView bytes) {
  ByteReader reader(bytes);
  NetCounters m;
  for (std::uint64_t* one :
       {&m.bytes_out, &m.bytes_in, &m.connections, &m.refused, &m.open_connections, &m.dropped_frames})
    *one = reader.number<std::uint64_t>();
  if (!reader.done()) return malformed("counters");
  return m;
}

}  // namespace drupe::net
