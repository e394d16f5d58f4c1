#include "shim/log_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/bytes.h"
#include "base/files.h"
#include "base/log.h"

namespace drupe {
namespace {

constexpr const char* kCurrent = "log";
constexpr const char* kOlder = "log.1";
constexpr std::size_t kFileHead = sizeof(std::uint64_t);
constexpr std::size_t kRecordHead = 16;

std::int64_t realtime_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

struct RecordHead {
  std::int64_t time_ns = 0;
  std::uint8_t channel = 0;
  std::uint32_t length = 0;
};

// What a writer of this file format cannot have written ends the reading of its file.
bool parse_head(ByteView bytes, RecordHead& head) {
  ByteReader reader(bytes.first(kRecordHead));
  head.time_ns = reader.number<std::int64_t>();
  head.channel = reader.number<std::uint8_t>();
  const bool zeros = reader.number<std::uint8_t>() == 0 && reader.number<std::uint16_t>() == 0;
  head.length = reader.number<std::uint32_t>();
  return zeros && head.channel < kChannels && head.length > 0 && head.length <= kMaxLogRecord;
}

// Length of the whole records at the front of `bytes`.
std::size_t whole_records(ByteView bytes) {
  std::size_t at = 0;
  RecordHead head;
  while (bytes.size() - at >= kRecordHead && parse_head(bytes.subspan(at), head) &&
         bytes.size() - at - kRecordHead >= head.length)
    at += kRecordHead + head.length;
  return at;
}

struct LogFile {
  UniqueFd fd;
  std::uint64_t base = 0;
};

// Absent or torn before its head was complete: not valid().
LogFile open_log(int dir, const char* name) {
  LogFile file;
  auto opened = open_at(dir, name, O_RDONLY | O_NOFOLLOW);
  if (!opened) return file;
  std::array<char, kFileHead> head{};
  if (::pread(opened->get(), head.data(), head.size(), 0) != static_cast<ssize_t>(head.size())) return file;
  file.base = ByteReader(std::string_view(head.data(), head.size())).number<std::uint64_t>();
  file.fd = std::move(*opened);
  return file;
}

}  // namespace

Result<LogWriter> LogWriter::open(int sandbox_dir) {
  LogWriter writer(sandbox_dir);
  const LogFile existing = open_log(sandbox_dir, kCurrent);
  if (!existing.fd.valid()) {
    const LogFile older = open_log(sandbox_dir, kOlder);
    // Between the two steps of a rotation: the records of the older file keep their offsets.
    DRUPE_TRY(writer.start_file(older.fd.valid() ? older.base + kLogFileSize : 0));
    return writer;
  }
  DRUPE_ASSIGN(const std::string bytes, read_file(sandbox_dir, kCurrent, 2 * kLogFileSize));
  writer.base_ = existing.base;
  writer.size_ = kFileHead + whole_records(as_bytes(bytes).subspan(kFileHead));
  DRUPE_ASSIGN(writer.file_, open_at(sandbox_dir, kCurrent, O_WRONLY | O_APPEND | O_NOFOLLOW));
  if (::ftruncate(writer.file_.get(), static_cast<off_t>(writer.size_)) != 0)
    return fail_sys("Cutting a torn record off the log failed", errno);
  return writer;
}

Status LogWriter::start_file(std::uint64_t stream_offset) {
  DRUPE_ASSIGN(file_, open_at(dir_, kCurrent, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW));
  base_ = stream_offset;
  size_ = 0;
  DRUPE_TRY(write_all(file_.get(), ByteWriter().number(base_).bytes()));
  size_ = kFileHead;
  return {};
}

Status LogWriter::rotate() {
  const std::uint64_t next = base_ + size_ - kFileHead;
  file_.reset();
  if (::renameat(dir_, kCurrent, dir_, kOlder) != 0) return fail_sys("Rotating the log failed", errno);
  return start_file(next);
}

void LogWriter::append(Channel channel, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t part = std::min(bytes.size(), kMaxLogRecord);
    write_record(channel, bytes.substr(0, part));
    bytes.remove_prefix(part);
  }
}

void LogWriter::write_record(Channel channel, std::string_view bytes) {
  if (!file_.valid() || size_ + kRecordHead + bytes.size() > kLogFileSize) {
    if (auto rotated =
            file_.valid() ? rotate() : start_file(base_ + size_ - std::min<std::uint64_t>(size_, kFileHead));
        !rotated) {
      file_.reset();
      return note_loss(rotated.error(), bytes.size());
    }
  }
  std::string head = ByteWriter()
                         .number(realtime_ns())
                         .number(static_cast<std::uint8_t>(channel))
                         .number<std::uint8_t>(0)
                         .number<std::uint16_t>(0)
                         .number(static_cast<std::uint32_t>(bytes.size()))
                         .take();
  const std::array<iovec, 2> parts{iovec{head.data(), head.size()},
                                   iovec{const_cast<char*>(bytes.data()), bytes.size()}};
  const std::size_t whole = kRecordHead + bytes.size();
  const ssize_t put = ::writev(file_.get(), parts.data(), static_cast<int>(parts.size()));
  if (put == static_cast<ssize_t>(whole)) {
    size_ += whole;
    return;
  }
  const int err = put < 0 ? errno : ENOSPC;
  // A torn record would hide everything behind it.
  if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) file_.reset();
  note_loss(fail_sys("Writing the output log failed", err).error(), bytes.size());
}

void LogWriter::note_loss(const Error& error, std::size_t bytes) {
  if (lost_ == 0) log(LogLevel::kWarning, error.message + "; output is lost until there is room");
  lost_ += bytes;
}

namespace {

// Delivers the records of one file from `offset` on. False: the callback asked to stop.
Result<bool> read_one(const LogFile& file, std::uint64_t& offset,
                      const std::function<bool(std::int64_t, Channel, std::string_view)>& on_record) {
  offset = std::max(offset, file.base);
  std::vector<std::uint8_t> buffer(kRecordHead + kMaxLogRecord);
  while (true) {
    const auto at = static_cast<off_t>(kFileHead + (offset - file.base));
    const ssize_t got = ::pread(file.fd.get(), buffer.data(), buffer.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_sys("Reading the log failed", errno);
    ByteView rest(buffer.data(), static_cast<std::size_t>(got));
    const std::size_t whole = whole_records(rest);
    if (whole == 0) return true;
    rest = rest.first(whole);
    while (!rest.empty()) {
      RecordHead head;
      if (!parse_head(rest, head)) return true;
      const std::size_t size = kRecordHead + head.length;
      offset += size;
      if (!on_record(head.time_ns, static_cast<Channel>(head.channel),
                     as_text(rest.subspan(kRecordHead, head.length))))
        return false;
      rest = rest.subspan(size);
    }
  }
}

}  // namespace

Status read_log(int sandbox_dir, std::uint64_t& offset,
                const std::function<bool(std::int64_t time_ns, Channel, std::string_view)>& on_record) {
  // The newer one first: a rotation between the two then shows the same file twice, never a gap.
  const LogFile current = open_log(sandbox_dir, kCurrent);
  const LogFile older = open_log(sandbox_dir, kOlder);
  if (older.fd.valid() && (!current.fd.valid() || older.base < current.base)) {
    const std::uint64_t before = offset;
    DRUPE_ASSIGN(const bool more, read_one(older, offset, on_record));
    if (!more) return {};
    // `offset` may be beyond the older file already; read_one() then delivers nothing and leaves it.
    offset = std::max(before, offset);
  }
  if (!current.fd.valid()) return {};
  DRUPE_ASSIGN([[maybe_unused]] const bool more, read_one(current, offset, on_record));
  return {};
}

}  // namespace drupe
