#include "protocol/messages.h"

#include "protocol/codec.h"

namespace drupe {

std::string encode_reply(std::string_view body) {
  std::string out(1, '\0');
  out.append(body);
  return out;
}

std::string encode_error_reply(const Error& error) {
  ByteWriter writer;
  writer.flag(true);
  codec::append_error(writer, error);
  return writer.take();
}

Result<std::string> decode_reply(ByteView payload) {
  ByteReader reader(payload);
  if (!reader.flag()) {
    if (!reader.ok()) return codec::malformed("reply");
    return std::string(as_text(reader.rest()));
  }
  Error error = codec::read_error(reader);
  if (!reader.done()) return codec::malformed("reply");
  return std::unexpected(std::move(error));
}

std::string encode_request(std::uint16_t kind, std::string_view body) {
  std::string out = ByteWriter().number(kind).take();
  out.append(body);
  return out;
}

Result<RequestView> decode_request(ByteView payload) {
  ByteReader reader(payload);
  RequestView view;
  view.kind = reader.number<std::uint16_t>();
  if (!reader.ok()) return codec::malformed("request");
  view.body = reader.rest();
  return view;
}

std::string HelloReply::encode() const {
  return ByteWriter().number(protocol_version).text(agent_version).text(kernel_release).text(boot_id).take();
}

Result<HelloReply> HelloReply::decode(ByteView bytes) {
  ByteReader reader(bytes);
  HelloReply m;
  m.protocol_version = reader.number<std::uint32_t>();
  m.agent_version = reader.text();
  m.kernel_release = reader.text();
  m.boot_id = reader.text();
  if (!reader.done()) return codec::malformed("hello");
  return m;
}

std::string SetUpRequest::encode() const {
  return ByteWriter()
      .number(realtime_ns)
      .text(entropy)
      .text(hostname)
      .text(machine_id)
      .text(mac)
      .flag(new_identity)
      .texts(default_env)
      .text(default_user)
      .text(default_cwd)
      .take();
}

Result<SetUpRequest> SetUpRequest::decode(ByteView bytes) {
  ByteReader reader(bytes);
  SetUpRequest m;
  m.realtime_ns = reader.number<std::uint64_t>();
  m.entropy = reader.text();
  m.hostname = reader.text();
  m.machine_id = reader.text();
  m.mac = reader.text();
  m.new_identity = reader.flag();
  m.default_env = reader.texts();
  m.default_user = reader.text();
  m.default_cwd = reader.text();
  if (!reader.done() || m.entropy.size() < 32 || m.entropy.size() > 256 || m.hostname.empty() ||
      m.hostname.size() > 64 || m.machine_id.size() != 32 || (!m.mac.empty() && m.mac.size() != 6))
    return codec::malformed("set-up");
  return m;
}

std::string FreezeRequest::encode() const {
  return ByteWriter().number(barrier).number(deadline_ms).take();
}

Result<FreezeRequest> FreezeRequest::decode(ByteView bytes) {
  ByteReader reader(bytes);
  FreezeRequest m;
  m.barrier = reader.number<std::uint32_t>();
  m.deadline_ms = reader.number<std::uint32_t>();
  if (!reader.done()) return codec::malformed("freeze");
  return m;
}

std::string GuestStats::encode() const {
  return ByteWriter()
      .number(memory_total)
      .number(memory_available)
      .number(memory_user)
      .number(cpu_user_ns)
      .number(disk_total)
      .number(disk_free)
      .number(processes)
      .number(oom_kills)
      .number(uptime_ns)
      .number(realtime_ns)
      .take();
}

Result<GuestStats> GuestStats::decode(ByteView bytes) {
  ByteReader reader(bytes);
  GuestStats m;
  m.memory_total = reader.number<std::uint64_t>();
  m.memory_available = reader.number<std::uint64_t>();
  m.memory_user = reader.number<std::uint64_t>();
  m.cpu_user_ns = reader.number<std::uint64_t>();
  m.disk_total = reader.number<std::uint64_t>();
  m.disk_free = reader.number<std::uint64_t>();
  m.processes = reader.number<std::uint32_t>();
  m.oom_kills = reader.number<std::uint64_t>();
  m.uptime_ns = reader.number<std::uint64_t>();
  m.realtime_ns = reader.number<std::uint64_t>();
  if (!reader.done()) return codec::malformed("statistics");
  return m;
}

std::string ProcessList::encode() const {
  ByteWriter writer;
  writer.flag(truncated).number(static_cast<std::uint32_t>(processes.size()));
  for (const auto& p : processes) {
    writer.number(p.pid).number(p.parent).number(p.uid).number(p.state).number(p.cpu_ns).number(p.rss_bytes);
    writer.text(p.command).text(p.exec_id);
  }
  return writer.take();
}

Result<ProcessList> ProcessList::decode(ByteView bytes) {
  ByteReader reader(bytes);
  ProcessList m;
  m.truncated = reader.flag();
  const auto count = reader.number<std::uint32_t>();
  for (std::uint32_t i = 0; reader.ok() && i < count; ++i) {
    GuestProcess p;
    p.pid = reader.number<std::int32_t>();
    p.parent = reader.number<std::int32_t>();
    p.uid = reader.number<std::uint32_t>();
    p.state = reader.number<char>();
    p.cpu_ns = reader.number<std::uint64_t>();
    p.rss_bytes = reader.number<std::uint64_t>();
    p.command = reader.text();
    p.exec_id = reader.text();
    m.processes.push_back(std::move(p));
  }
  if (!reader.done()) return codec::malformed("process list");
  return m;
}

std::string SignalExecRequest::encode() const {
  return ByteWriter().text(exec_id).number(signal).flag(tree).take();
}

Result<SignalExecRequest> SignalExecRequest::decode(ByteView bytes) {
  ByteReader reader(bytes);
  SignalExecRequest m;
  m.exec_id = reader.text();
  m.signal = reader.number<std::int32_t>();
  m.tree = reader.flag();
  if (!reader.done() || m.signal < 0 || m.signal > 64) return codec::malformed("signal");
  return m;
}

std::string ShutdownRequest::encode() const {
  return ByteWriter().number(signal).number(grace_ms).take();
}

Result<ShutdownRequest> ShutdownRequest::decode(ByteView bytes) {
  ByteReader reader(bytes);
  ShutdownRequest m;
  m.signal = reader.number<std::int32_t>();
  m.grace_ms = reader.number<std::uint32_t>();
  if (!reader.done() || m.signal < 0 || m.signal > 64) return codec::malformed("shutdown");
  return m;
}

std::string SetHostRequest::encode() const {
  return ByteWriter().text(hosts).text(resolv_conf).take();
}

Result<SetHostRequest> SetHostRequest::decode(ByteView bytes) {
  ByteReader reader(bytes);
  SetHostRequest m;
  m.hosts = reader.text();
  m.resolv_conf = reader.text();
  if (!reader.done()) return codec::malformed("host settings");
  return m;
}

std::string SetNetworkRequest::encode() const {
  ByteWriter writer;
  writer.flag(up).text(mac).number(mtu).text(v4).text(gateway_v4).number(v4_prefix);
  writer.text(v6).text(gateway_v6).number(v6_prefix).text(resolv_conf);
  return writer.take();
}

Result<SetNetworkRequest> SetNetworkRequest::decode(ByteView bytes) {
  constexpr std::uint32_t kLeastMtu = 576;  // RFC 791, 3.1: what every host takes
  ByteReader reader(bytes);
  SetNetworkRequest m;
  m.up = reader.flag();
  m.mac = reader.text();
  m.mtu = reader.number<std::uint32_t>();
  m.v4 = reader.text();
  m.gateway_v4 = reader.text();
  m.v4_prefix = reader.number<std::uint8_t>();
  m.v6 = reader.text();
  m.gateway_v6 = reader.text();
  m.v6_prefix = reader.number<std::uint8_t>();
  m.resolv_conf = reader.text();
  const bool good = (m.mac.empty() || m.mac.size() == 6) && m.mtu >= kLeastMtu && m.mtu <= 65535 &&
                    m.v4_prefix <= 32 && m.v6_prefix <= 128;
  if (!reader.done() || !good) return codec::malformed("network");
  return m;
}

}  // namespace drupe
