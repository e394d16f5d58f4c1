#include "shim/spec.h"

#include "base/bytes.h"
#include "protocol/codec.h"

namespace drupe {
namespace {

constexpr std::uint32_t kSpecVersion = 4;

}  // namespace

void NetSpec::append_to(ByteWriter& writer) const {
  writer.texts(resolvers).flag(follow_resolvers).texts(search).flag(ipv6).text(policy);
  net::append_networks(writer, networks);
}

NetSpec NetSpec::read(ByteReader& reader) {
  NetSpec spec;
  spec.resolvers = reader.texts();
  spec.follow_resolvers = reader.flag();
  spec.search = reader.texts();
  spec.ipv6 = reader.flag();
  spec.policy = reader.text();
  spec.networks = net::read_networks(reader);
  return spec;
}

std::string ShimSpec::encode() const {
  ByteWriter writer;
  writer.number(version).number(static_cast<std::uint8_t>(mode)).flag(start_main_on_attach).flag(owner_bound);
  writer.flag(awaits_fork);
  writer.number(static_cast<std::int32_t>(owner_pid)).number(start_deadline_ms).number(restore_retries);
  writer.number(static_cast<std::uint8_t>(accelerator)).number(tsc_khz);
  writer.text(qemu_path).text(preload_path).text(record_dir_path).texts(exercise);
  writer.text(net_path);
  net.append_to(writer);
  writer.text(trust);
  return writer.take();
}

Result<ShimSpec> ShimSpec::decode(std::string_view bytes) {
  ByteReader reader(bytes);
  ShimSpec spec;
  spec.version = reader.number<std::uint32_t>();
  const auto mode = reader.number<std::uint8_t>();
  spec.start_main_on_attach = reader.flag();
  spec.owner_bound = reader.flag();
  spec.awaits_fork = reader.flag();
  spec.owner_pid = reader.number<std::int32_t>();
  spec.start_deadline_ms = reader.number<std::uint32_t>();
  spec.restore_retries = reader.number<std::uint32_t>();
  const auto accelerator = reader.number<std::uint8_t>();
  spec.tsc_khz = reader.number<std::uint64_t>();
  spec.qemu_path = reader.text();
  spec.preload_path = reader.text();
  spec.record_dir_path = reader.text();
  spec.exercise = reader.texts();
  spec.net_path = reader.text();
  spec.net = NetSpec::read(reader);
  spec.trust = reader.text();
  if (!reader.done() || spec.version != kSpecVersion ||
      mode > static_cast<std::uint8_t>(LaunchMode::kMakeBase) ||
      accelerator > static_cast<std::uint8_t>(Accelerator::kTcg))
    return fail(ErrorCode::kInvalidArgument,
                "The shim was started with a specification that it does not understand",
                "Install drupe and drupe-shim from the same build.");
  spec.mode = static_cast<LaunchMode>(mode);
  spec.accelerator = static_cast<Accelerator>(accelerator);
  return spec;
}

std::string ShimStatus::encode() const {
  ByteWriter writer;
  writer.flag(error.has_value());
  if (error) codec::append_error(writer, *error);
  append_timings(writer, timings);
  writer.texts(notes);
  return writer.take();
}

Result<ShimStatus> ShimStatus::decode(std::string_view bytes) {
  if (bytes.empty())
    return fail(ErrorCode::kHost, "The sandbox's shim ended before it said how the start went",
                "Look at the kernel's log for an out-of-memory kill, and run `drupe doctor`.");
  ByteReader reader(bytes);
  ShimStatus status;
  if (reader.flag()) status.error = codec::read_error(reader);
  status.timings = read_timings(reader);
  status.notes = reader.texts();
  if (!reader.done())
    return fail(ErrorCode::kHost, "The sandbox's shim reported its start in an unknown form");
  return status;
}

}  // namespace drupe
