#include "hypervisor/qemu/starter_message.h"

#include <algorithm>
#include <array>

#include "base/bytes.h"

namespace drupe {
namespace {

constexpr std::array kChannels{&QemuParts::qmp,       &QemuParts::control,  &QemuParts::bulk,
                               &QemuParts::console,   &QemuParts::messages, &QemuParts::report,
                               &QemuParts::spare_net, &QemuParts::mem,      &QemuParts::pagemap,
                               &QemuParts::smaps,     &QemuParts::stat,     &QemuParts::state_in,
                               &QemuParts::state_out};

// Shorter than any machine's request.
constexpr std::string_view kHelper = "helper";
// Other requests bring descriptors.
constexpr std::string_view kErrand = "errand";

// Descriptors travel in the order in which their presence is told.
void put_fd(FdMessage& message, ByteWriter& writer, UniqueFd fd) {
  writer.flag(fd.valid());
  if (fd.valid()) message.fds.push_back(std::move(fd));
}

class FdReader {
 public:
  FdReader(FdMessage& message, ByteReader& reader) : fds_(message.fds), reader_(reader) {}
  UniqueFd take() {
    if (!reader_.flag()) return {};
    if (next_ == fds_.size()) {
      short_ = true;
      return {};
    }
    return std::move(fds_[next_++]);
  }
  [[nodiscard]] bool done() const { return !short_ && next_ == fds_.size(); }

 private:
  std::vector<UniqueFd>& fds_;
  ByteReader& reader_;
  std::size_t next_ = 0;
  bool short_ = false;
};

std::unexpected<Error> malformed() {
  return fail(ErrorCode::kIntegrity, "A message between a shim and its starter is malformed");
}

}  // namespace

FdMessage helper_request(UniqueFd log, UniqueFd fd) {
  FdMessage message{std::string(kHelper), {}};
  message.fds.push_back(std::move(log));
  message.fds.push_back(std::move(fd));
  return message;
}

bool is_helper_request(const FdMessage& message) {
  return message.bytes == kHelper;
}

FdMessage errand_request(std::string_view request) {
  return {std::string(kErrand).append(request), {}};
}

std::optional<std::string_view> errand_of(const FdMessage& message) {
  if (!message.fds.empty() || !message.bytes.starts_with(kErrand)) return std::nullopt;
  return std::string_view(message.bytes).substr(kErrand.size());
}

FdMessage encode_start(LaunchSpec spec) {
  FdMessage message;
  ByteWriter writer;
  writer.number(spec.shape.vcpus).number(spec.shape.memory_mib).number(spec.disk_bytes);
  for (const std::uint8_t byte : spec.mac) writer.number(byte);
  put_fd(message, writer, std::move(spec.memory.base));
  put_fd(message, writer, std::move(spec.net));
  writer.number(static_cast<std::uint32_t>(spec.disk.size()));
  for (DiskNode& node : spec.disk) {
    writer.flag(node.format == DiskFormat::kQcow2);
    put_fd(message, writer, std::move(node.fd));
  }
  message.bytes = writer.take();
  return message;
}

Result<LaunchSpec> decode_start(FdMessage message) {
  ByteReader reader(message.bytes);
  FdReader fds(message, reader);
  LaunchSpec spec;
  spec.shape.vcpus = reader.number<std::uint32_t>();
  spec.shape.memory_mib = reader.number<std::uint32_t>();
  spec.disk_bytes = reader.number<std::uint64_t>();
  for (std::uint8_t& byte : spec.mac) byte = reader.number<std::uint8_t>();
  spec.memory.base = fds.take();
  spec.net = fds.take();
  const auto nodes = reader.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < nodes && reader.ok(); ++i) {
    DiskNode node;
    node.format = reader.flag() ? DiskFormat::kQcow2 : DiskFormat::kRaw;
    node.fd = fds.take();
    if (!node.fd.valid()) return malformed();
    spec.disk.push_back(std::move(node));
  }
  if (!reader.done() || !fds.done() || !spec.memory.base.valid()) return malformed();
  return spec;
}

FdMessage encode_answer(StartAnswer answer) {
  FdMessage message;
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(answer.failed.size()));
  for (const pid_t pid : answer.failed) writer.number(static_cast<std::int32_t>(pid));
  writer.flag(answer.parts.has_value());
  if (answer.parts) {
    QemuParts& parts = *answer.parts;
    writer.number(static_cast<std::int32_t>(parts.child.pid)).texts(parts.confinement_missing);
    writer.number(parts.ram_bytes).number(static_cast<std::uint64_t>(parts.disk_nodes));
    put_fd(message, writer, std::move(parts.child.pidfd));
    for (const auto channel : kChannels) put_fd(message, writer, std::move(parts.*channel));
  } else {
    const Error& error = answer.parts.error();
    writer.number(static_cast<std::uint32_t>(error.code)).text(error.message).text(error.next_step);
  }
  message.bytes = writer.take();
  return message;
}

Result<StartAnswer> decode_answer(FdMessage message) {
  ByteReader reader(message.bytes);
  FdReader fds(message, reader);
  StartAnswer answer;
  const auto failed = reader.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < failed && reader.ok(); ++i)
    answer.failed.push_back(reader.number<std::int32_t>());
  if (reader.flag()) {
    QemuParts& parts = *answer.parts;
    parts.child.pid = reader.number<std::int32_t>();
    parts.confinement_missing = reader.texts();
    parts.ram_bytes = reader.number<std::uint64_t>();
    parts.disk_nodes = reader.number<std::uint64_t>();
    parts.child.pidfd = fds.take();
    for (const auto channel : kChannels) parts.*channel = fds.take();
  } else {
    Error error;
    error.code = static_cast<ErrorCode>(reader.number<std::uint32_t>());
    error.message = reader.text();
    error.next_step = reader.text();
    answer.parts = std::unexpected(std::move(error));
  }
  if (!reader.done() || !fds.done()) return malformed();
  return answer;
}

}  // namespace drupe
