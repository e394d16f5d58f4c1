#include <algorithm>

#include "protocol/codec.h"
#include "protocol/messages.h"

namespace drupe {
namespace {

constexpr std::size_t kMaxExecId = 64;
// More than the kernel takes in one execve() of 4 MiB; keeps a hostile message from becoming many small
// allocations.
constexpr std::size_t kMaxStrings = std::size_t{128} * 1024;
constexpr std::size_t kMaxLimits = 64;
constexpr std::size_t kOpenHead = sizeof(std::uint32_t);

void append_exec(ByteWriter& writer, const ExecOptions& exec) {
  writer.text(exec.exec_id).texts(exec.argv).texts(exec.env).text(exec.cwd).text(exec.user);
  writer.flag(exec.tty).number(exec.rows).number(exec.columns);
  writer.flag(exec.stdin_open).flag(exec.keep_on_reset).number(exec.timeout_ms);
  writer.number(static_cast<std::uint32_t>(exec.limits.size()));
  for (const auto& limit : exec.limits) writer.number(limit.resource).number(limit.soft).number(limit.hard);
}

ExecOptions read_exec(ByteReader& reader) {
  ExecOptions exec;
  exec.exec_id = reader.text();
  exec.argv = reader.texts();
  exec.env = reader.texts();
  exec.cwd = reader.text();
  exec.user = reader.text();
  exec.tty = reader.flag();
  exec.rows = reader.number<std::uint16_t>();
  exec.columns = reader.number<std::uint16_t>();
  exec.stdin_open = reader.flag();
  exec.keep_on_reset = reader.flag();
  exec.timeout_ms = reader.number<std::uint64_t>();
  const auto count = reader.number<std::uint32_t>();
  for (std::uint32_t i = 0; reader.ok() && i < count && i <= kMaxLimits; ++i) {
    ResourceLimit limit;
    limit.resource = reader.number<std::int32_t>();
    limit.soft = reader.number<std::uint64_t>();
    limit.hard = reader.number<std::uint64_t>();
    exec.limits.push_back(limit);
  }
  return exec;
}

void append_file(ByteWriter& writer, const FileOptions& file) {
  writer.text(file.path).text(file.target).number(file.offset).number(file.length);
  writer.number(file.mode).number(file.uid).number(file.gid);
  writer.flag(file.no_follow).flag(file.recursive).flag(file.parents).flag(file.append).flag(file.exclusive);
  writer.flag(file.ranged).texts(file.ignore).flag(file.contents).number(file.port).text(file.user);
}

FileOptions read_file_options(ByteReader& reader) {
  FileOptions file;
  file.path = reader.text();
  file.target = reader.text();
  file.offset = reader.number<std::uint64_t>();
  file.length = reader.number<std::uint64_t>();
  file.mode = reader.number<std::uint32_t>();
  file.uid = reader.number<std::int64_t>();
  file.gid = reader.number<std::int64_t>();
  file.no_follow = reader.flag();
  file.recursive = reader.flag();
  file.parents = reader.flag();
  file.append = reader.flag();
  file.exclusive = reader.flag();
  file.ranged = reader.flag();
  file.ignore = reader.texts();
  file.contents = reader.flag();
  file.port = reader.number<std::uint16_t>();
  file.user = reader.text();
  return file;
}

bool has_nul(const std::string& text) {
  return text.find('\0') != std::string::npos;
}

bool plausible(const ExecOptions& exec) {
  if (exec.argv.size() > kMaxStrings || exec.env.size() > kMaxStrings || exec.limits.size() > kMaxLimits)
    return false;
  return std::none_of(exec.argv.begin(), exec.argv.end(), has_nul) &&
         std::none_of(exec.env.begin(), exec.env.end(), has_nul) && !has_nul(exec.cwd) && !has_nul(exec.user);
}

bool plausible(const FileOptions& file) {
  constexpr std::int64_t kMaxId = 0xfffffffe;
  return file.ignore.size() <= kMaxStrings && !has_nul(file.path) && !has_nul(file.target) &&
         !has_nul(file.user) && file.uid >= -1 && file.uid <= kMaxId && file.gid >= -1 && file.gid <= kMaxId;
}

}  // namespace

namespace codec {

void append_error(ByteWriter& writer, const Error& error) {
  writer.number(static_cast<std::uint8_t>(error.code)).text(error.message).text(error.next_step);
  writer.number(static_cast<std::int32_t>(error.sys_errno));
}

Error read_error(ByteReader& reader) {
  Error error;
  const auto code = reader.number<std::uint8_t>();
  error.code =
      code <= static_cast<std::uint8_t>(ErrorCode::kGuest) ? static_cast<ErrorCode>(code) : ErrorCode::kGuest;
  error.message = reader.text();
  error.next_step = reader.text();
  error.sys_errno = reader.number<std::int32_t>();
  return error;
}

}  // namespace codec

bool valid_exec_id(std::string_view id) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !id.empty() && id.size() <= kMaxExecId && std::all_of(id.begin(), id.end(), good);
}

std::string OpenRequest::encode() const {
  ByteWriter writer;
  writer.number(static_cast<std::uint8_t>(kind));
  if (kind == OpenKind::kExec || kind == OpenKind::kAttach)
    append_exec(writer, exec);
  else
    append_file(writer, file);
  return writer.take();
}

Result<OpenRequest> OpenRequest::decode(ByteView bytes) {
  ByteReader reader(bytes);
  OpenRequest m;
  const auto kind = reader.number<std::uint8_t>();
  if (kind == 0 || kind > static_cast<std::uint8_t>(OpenKind::kSelf))
    return fail(ErrorCode::kUnsupported, "This kind of stream is not known here");
  m.kind = static_cast<OpenKind>(kind);
  if (m.kind == OpenKind::kExec || m.kind == OpenKind::kAttach) {
    m.exec = read_exec(reader);
    if (!reader.done() || !plausible(m.exec)) return codec::malformed("command");
    if (!valid_exec_id(m.exec.exec_id))
      return fail(ErrorCode::kInvalidArgument,
                  "The command's id is not 1 to 64 letters, digits, dots, dashes or underscores");
    return m;
  }
  m.file = read_file_options(reader);
  if (!reader.done() || !plausible(m.file)) return codec::malformed("file request");
  return m;
}

void append_open_frames(std::string& out, std::uint32_t stream, std::string_view encoded) {
  std::string first = ByteWriter().number(static_cast<std::uint32_t>(encoded.size())).take();
  const std::size_t head = std::min(encoded.size(), kMaxPayload - kOpenHead);
  first.append(encoded.substr(0, head));
  append_frame(out, FrameType::kOpen, Channel::kStdin, stream, first);
  for (encoded.remove_prefix(head); !encoded.empty();) {
    const std::size_t part = std::min(encoded.size(), kMaxPayload);
    append_frame(out, FrameType::kData, Channel::kStdin, stream, encoded.substr(0, part));
    encoded.remove_prefix(part);
  }
}

Result<OpenAssembler> OpenAssembler::begin(ByteView payload) {
  ByteReader reader(payload);
  OpenAssembler assembler;
  assembler.total_ = reader.number<std::uint32_t>();
  if (!reader.ok() || assembler.total_ > kMaxOpenRequest || reader.rest().size() > assembler.total_)
    return codec::malformed("open");
  assembler.bytes_ = as_text(reader.rest());
  return assembler;
}

Status OpenAssembler::add(ByteView payload) {
  if (payload.size() > total_ - bytes_.size()) return codec::malformed("open");
  bytes_.append(as_text(payload));
  return {};
}

std::string OpenedReply::encode() const {
  return ByteWriter().number(pid).take();
}

Result<OpenedReply> OpenedReply::decode(ByteView bytes) {
  ByteReader reader(bytes);
  OpenedReply m;
  m.pid = reader.number<std::int32_t>();
  if (!reader.done()) return codec::malformed("opened");
  return m;
}

std::string ExitFacts::encode() const {
  ByteWriter writer;
  writer.number(exit_code).number(signal).flag(timed_out).flag(oom_killed).flag(truncated);
  writer.number(wall_ns).number(cpu_ns).flag(error.has_value());
  if (error) codec::append_error(writer, *error);
  writer.text(result);
  return writer.take();
}

Result<ExitFacts> ExitFacts::decode(ByteView bytes) {
  ByteReader reader(bytes);
  ExitFacts m;
  m.exit_code = reader.number<std::int32_t>();
  m.signal = reader.number<std::int32_t>();
  m.timed_out = reader.flag();
  m.oom_killed = reader.flag();
  m.truncated = reader.flag();
  m.wall_ns = reader.number<std::uint64_t>();
  m.cpu_ns = reader.number<std::uint64_t>();
  if (reader.flag()) m.error = codec::read_error(reader);
  m.result = reader.text();
  if (!reader.done()) return codec::malformed("exit");
  return m;
}

void StatResult::append_to(ByteWriter& writer) const {
  writer.text(name).number(type).number(size).number(allocated).number(mode).number(uid).number(gid);
  writer.number(mtime_ns).text(link_target).number(inode);
}

StatResult StatResult::read(ByteReader& reader) {
  StatResult m;
  m.name = reader.text();
  m.type = reader.number<char>();
  m.size = reader.number<std::uint64_t>();
  m.allocated = reader.number<std::uint64_t>();
  m.mode = reader.number<std::uint32_t>();
  m.uid = reader.number<std::uint32_t>();
  m.gid = reader.number<std::uint32_t>();
  m.mtime_ns = reader.number<std::int64_t>();
  m.link_target = reader.text();
  m.inode = reader.number<std::uint64_t>();
  return m;
}

void WatchEvent::append_to(ByteWriter& writer) const {
  writer.number(kind).flag(directory).number(cookie).text(name);
}

WatchEvent WatchEvent::read(ByteReader& reader) {
  WatchEvent m;
  m.kind = reader.number<char>();
  m.directory = reader.flag();
  m.cookie = reader.number<std::uint32_t>();
  m.name = reader.text();
  return m;
}

void append_record(std::string& out, RecordKind kind, std::string_view body) {
  const auto size = static_cast<std::uint32_t>(body.size() + 1);
  char head[5];
  std::memcpy(head, &size, sizeof size);
  head[4] = static_cast<char>(kind);
  out.append(head, sizeof head);
  out.append(body);
}

Status RecordParser::feed(ByteView bytes, const std::function<Status(RecordKind, ByteView)>& on_record) {
  while (!bytes.empty()) {
    constexpr std::size_t kHead = sizeof(std::uint32_t);
    std::size_t want = kHead;
    if (partial_.size() >= kHead) want += ByteReader(partial_).number<std::uint32_t>();
    const std::size_t take = std::min(bytes.size(), want - partial_.size());
    partial_.append(as_text(bytes.first(take)));
    bytes = bytes.subspan(take);
    if (partial_.size() < kHead) return {};
    const std::size_t size = ByteReader(partial_).number<std::uint32_t>();
    if (size == 0 || size > kMaxRecord)
      return fail(ErrorCode::kIntegrity, "A record has an impossible length");
    if (partial_.size() < kHead + size) continue;
    const std::string record = std::exchange(partial_, {});
    const auto kind = static_cast<std::uint8_t>(record[kHead]);
    if (kind == 0 || kind > static_cast<std::uint8_t>(RecordKind::kChange))
      return fail(ErrorCode::kIntegrity, "A record has an unknown kind");
    DRUPE_TRY(on_record(static_cast<RecordKind>(kind), as_bytes(record).subspan(kHead + 1)));
  }
  return {};
}

}  // namespace drupe
