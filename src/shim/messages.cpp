#include "shim/messages.h"

#include <algorithm>

#include "protocol/codec.h"

namespace drupe {
namespace {

void append_map(ByteWriter& writer, const std::map<std::string, std::string>& map) {
  writer.number(static_cast<std::uint32_t>(map.size()));
  for (const auto& [key, value] : map) writer.text(key).text(value);
}

std::map<std::string, std::string> read_map(ByteReader& reader) {
  std::map<std::string, std::string> map;
  const auto count = reader.number<std::uint32_t>();
  for (std::uint32_t i = 0; reader.ok() && i < count; ++i) {
    std::string key = reader.text();
    map[std::move(key)] = reader.text();
  }
  return map;
}

void append_optional(ByteWriter& writer, const std::optional<std::uint64_t>& value) {
  writer.flag(value.has_value());
  if (value) writer.number(*value);
}

std::optional<std::uint64_t> read_optional(ByteReader& reader) {
  if (!reader.flag()) return std::nullopt;
  return reader.number<std::uint64_t>();
}

// Only a record: the reply of kWait and the head of others.
Result<std::string> read_only_text(ByteView bytes, std::string_view what) {
  ByteReader reader(bytes);
  std::string text = reader.text();
  if (!reader.done()) return codec::malformed(what);
  return text;
}

}  // namespace

std::string encode_reset(const Error& error) {
  return encode_error_reply(error);
}

Error decode_reset(ByteView payload) {
  auto reply = decode_reply(payload);
  if (!reply) return std::move(reply).error();
  return Error{ErrorCode::kCancelled, "The stream was reset", {}, 0};
}

std::string SnapshotRequest::encode() const {
  return ByteWriter().number(deadline_ms).number(ticket).take();
}

Result<SnapshotRequest> SnapshotRequest::decode(ByteView bytes) {
  ByteReader reader(bytes);
  SnapshotRequest m;
  m.deadline_ms = reader.number<std::uint32_t>();
  m.ticket = reader.number<std::uint64_t>();
  if (!reader.done()) return codec::malformed("snapshot");
  return m;
}

std::string SnapshotReply::encode() const {
  ByteWriter writer;
  writer.text(saved.delta_file).text(saved.extents_file).text(saved.device_state_file);
  writer.text(saved.flows_file).flag(saved.link_up);
  writer.number(saved.epoch).flag(saved.durable).texts(disk_chain);
  writer.number(static_cast<std::uint64_t>(stopped_ms * 1000));
  append_timings(writer, timings);
  return writer.take();
}

Result<SnapshotReply> SnapshotReply::decode(ByteView bytes) {
  ByteReader reader(bytes);
  SnapshotReply m;
  m.saved.delta_file = reader.text();
  m.saved.extents_file = reader.text();
  m.saved.device_state_file = reader.text();
  m.saved.flows_file = reader.text();
  m.saved.link_up = reader.flag();
  m.saved.epoch = reader.number<std::uint64_t>();
  m.saved.durable = reader.flag();
  m.disk_chain = reader.texts();
  m.stopped_ms = static_cast<double>(reader.number<std::uint64_t>()) / 1000;
  m.timings = read_timings(reader);
  if (!reader.done()) return codec::malformed("snapshot reply");
  return m;
}

std::string SnapshotStageRequest::encode() const {
  return ByteWriter().number(ticket).number(static_cast<std::uint8_t>(stage)).take();
}

Result<SnapshotStageRequest> SnapshotStageRequest::decode(ByteView bytes) {
  ByteReader reader(bytes);
  SnapshotStageRequest m;
  m.ticket = reader.number<std::uint64_t>();
  const auto stage = reader.number<std::uint8_t>();
  if (!reader.done() || m.ticket == 0 || stage > static_cast<std::uint8_t>(Stage::kMoved))
    return codec::malformed("snapshot stage");
  m.stage = static_cast<Stage>(stage);
  return m;
}

std::string StopRequest::encode() const {
  return ByteWriter().number(signal).number(grace_ms).flag(discard).take();
}

Result<StopRequest> StopRequest::decode(ByteView bytes) {
  ByteReader reader(bytes);
  StopRequest m;
  m.signal = reader.number<std::int32_t>();
  m.grace_ms = reader.number<std::uint32_t>();
  m.discard = reader.flag();
  if (!reader.done() || m.signal < 0 || m.signal > 64) return codec::malformed("stop");
  return m;
}

std::string UpdateRequest::encode() const {
  ByteWriter writer;
  writer.flag(name.has_value());
  if (name) writer.text(*name);
  writer.flag(labels.has_value());
  if (labels) append_map(writer, *labels);
  append_optional(writer, idle_timeout_ms);
  append_optional(writer, max_lifetime_ms);
  writer.number(valid_until_ns);
  return writer.take();
}

Result<UpdateRequest> UpdateRequest::decode(ByteView bytes) {
  ByteReader reader(bytes);
  UpdateRequest m;
  if (reader.flag()) m.name = reader.text();
  if (reader.flag()) m.labels = read_map(reader);
  m.idle_timeout_ms = read_optional(reader);
  m.max_lifetime_ms = read_optional(reader);
  m.valid_until_ns = reader.number<std::uint64_t>();
  if (!reader.done()) return codec::malformed("update");
  return m;
}

std::string ClaimRequest::encode() const {
  return ByteWriter().text(record_json).number(static_cast<std::int32_t>(owner_pid)).take();
}

Result<ClaimRequest> ClaimRequest::decode(ByteView bytes) {
  ByteReader reader(bytes);
  ClaimRequest m;
  m.record_json = reader.text();
  m.owner_pid = reader.number<std::int32_t>();
  if (!reader.done()) return codec::malformed("claim");
  return m;
}

std::string brief_record_json(SandboxRecord record) {
  // Leaves room for the frame's other fields (the console's tail among them).
  constexpr std::size_t kRoom = 32 * 1024;
  std::string json = encode_record(record);
  if (json.size() <= kRoom) return json;
  if (record.main) {
    record.main->env.clear();
    record.main->argv.clear();
  }
  record.image_env.clear();
  record.labels.clear();
  record.network.allow.clear();
  record.network.deny.clear();
  json = encode_record(record);
  if (json.size() <= kRoom) return json;
  record.cause_text.resize(std::min<std::size_t>(record.cause_text.size(), 4096));
  record.confinement_missing.clear();
  return encode_record(record);
}

std::string NetworksRequest::encode() const {
  ByteWriter writer;
  spec.append_to(writer);
  return writer.take();
}

Result<NetworksRequest> NetworksRequest::decode(ByteView bytes) {
  ByteReader reader(bytes);
  NetworksRequest m;
  m.spec = NetSpec::read(reader);
  if (!reader.done())
    return fail(ErrorCode::kInvalidArgument, "The request about private networks is malformed");
  return m;
}

std::string NetSetRequest::encode() const {
  ByteWriter writer;
  writer.text(encode_network(network));
  spec.append_to(writer);
  return writer.take();
}

Result<NetSetRequest> NetSetRequest::decode(ByteView bytes) {
  ByteReader reader(bytes);
  NetSetRequest m;
  const std::string json = reader.text();
  m.spec = NetSpec::read(reader);
  if (!reader.done()) return codec::malformed("network policy");
  DRUPE_ASSIGN(m.network, decode_network(json));
  return m;
}

std::string WaitReply::encode() const {
  return ByteWriter().text(record_json).take();
}

Result<WaitReply> WaitReply::decode(ByteView bytes) {
  DRUPE_ASSIGN(std::string text, read_only_text(bytes, "wait reply"));
  return WaitReply{std::move(text)};
}

std::string ShimInfo::encode() const {
  ByteWriter writer;
  writer.text(record_json)
      .number(hypervisor_private_bytes)
      .number(shim_private_bytes)
      .number(guest_private_bytes);
  writer.number(cpu_ns).number(log_bytes_lost).number(clients).number(streams);
  writer.number(static_cast<std::int32_t>(hypervisor_pid)).number(static_cast<std::int32_t>(network_pid));
  writer.text(console_tail);
  return writer.take();
}

Result<ShimInfo> ShimInfo::decode(ByteView bytes) {
  ByteReader reader(bytes);
  ShimInfo m;
  m.record_json = reader.text();
  m.hypervisor_private_bytes = reader.number<std::uint64_t>();
  m.shim_private_bytes = reader.number<std::uint64_t>();
  m.guest_private_bytes = reader.number<std::uint64_t>();
  m.cpu_ns = reader.number<std::uint64_t>();
  m.log_bytes_lost = reader.number<std::uint64_t>();
  m.clients = reader.number<std::uint32_t>();
  m.streams = reader.number<std::uint32_t>();
  m.hypervisor_pid = reader.number<std::int32_t>();
  m.network_pid = reader.number<std::int32_t>();
  m.console_tail = reader.text();
  if (!reader.done()) return codec::malformed("information");
  return m;
}

}  // namespace drupe
