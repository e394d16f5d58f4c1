#include "agent/tar_read.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

namespace drupe::agent {
namespace {

constexpr std::size_t kMaxName = 4096;
constexpr std::size_t kMaxExtended = 1024 * 1024;
constexpr std::size_t kMaxExtents = 65536;
constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 62;
constexpr std::int64_t kGiga = 1'000'000'000;

std::unexpected<Error> malformed(std::string_view what) {
  return fail(ErrorCode::kIntegrity, "The tar archive is damaged: " + std::string(what));
}

std::string_view text_field(const std::array<char, kTarBlock>& block, std::size_t offset, std::size_t width) {
  const std::string_view field(block.data() + offset, width);
  return field.substr(0, field.find('\0'));
}

/// Octal with blanks and NULs around it, or base 256 behind a set high bit. Negative and overlong values are
/// no numbers.
std::optional<std::uint64_t> number_field(const std::array<char, kTarBlock>& block, std::size_t offset,
                                          std::size_t width) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(block.data() + offset);
  std::uint64_t value = 0;
  if (bytes[0] == 0x80) {
    for (std::size_t i = 1; i < width; ++i) {
      if (value > kMaxSize >> 8) return std::nullopt;
      value = value << 8 | bytes[i];
    }
    return value;
  }
  std::size_t i = 0;
  while (i < width && bytes[i] == ' ') ++i;
  for (; i < width && bytes[i] >= '0' && bytes[i] <= '7'; ++i) {
    if (value > kMaxSize >> 3) return std::nullopt;
    value = value << 3 | static_cast<std::uint64_t>(bytes[i] - '0');
  }
  for (; i < width; ++i)
    if (bytes[i] != ' ' && bytes[i] != '\0') return std::nullopt;
  return value;
}

std::optional<std::uint64_t> decimal(std::string_view text) {
  std::uint64_t value = 0;
  if (text.empty()) return std::nullopt;
  for (const char c : text) {
    if (c < '0' || c > '9' || value > kMaxSize / 10) return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

/// "-12.345" to nanoseconds.
std::optional<std::int64_t> time_of(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const auto dot = text.find('.');
  const auto seconds = decimal(text.substr(0, dot));
  if (!seconds || *seconds > static_cast<std::uint64_t>(INT64_MAX / kGiga - 1)) return std::nullopt;
  std::int64_t fraction = 0;
  std::int64_t scale = kGiga / 10;
  for (const char c : dot == std::string_view::npos ? std::string_view() : text.substr(dot + 1)) {
    if (c < '0' || c > '9') return std::nullopt;
    fraction += (c - '0') * scale;
    scale /= 10;
  }
  const std::int64_t value = static_cast<std::int64_t>(*seconds) * kGiga + fraction;
  return negative ? -value : value;
}

bool checksum_fits(const std::array<char, kTarBlock>& block) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(block[i]);
  return number_field(block, 148, 8) == sum;
}

/// Ascending, not overlapping, inside the file, and as long together as what is stored.
bool extents_fit(const TarEntry& entry, std::uint64_t stored) {
  std::uint64_t end = 0;
  std::uint64_t total = 0;
  for (const auto& extent : entry.extents) {
    if (extent.offset < end || extent.length > entry.size || extent.offset > entry.size - extent.length)
      return false;
    end = extent.offset + extent.length;
    total += extent.length;
  }
  return total == stored;
}

}  // namespace

/// What `x`, `L` and `K` entries say about the next one.
struct TarReader::Extended {
  std::optional<std::string> path, link, sparse_name;
  std::optional<std::uint64_t> size, uid, gid, real_size;
  std::optional<std::int64_t> mtime;
  std::vector<TarExtent> extents;
  std::optional<std::uint64_t> pending_offset;
  bool sparse = false, map_in_data = false;

  bool take(std::string_view key, std::string_view value);
  bool take_sparse(std::string_view key, std::string_view value);
  bool take_map(std::string_view value);
};

bool TarReader::Extended::take(std::string_view key, std::string_view value) {
  if (key == "path") {
    path = value;
  } else if (key == "linkpath") {
    link = value;
  } else if (key == "size") {
    return (size = decimal(value)).has_value();
  } else if (key == "uid") {
    return (uid = decimal(value)).has_value() && *uid < 0xffffffff;
  } else if (key == "gid") {
    return (gid = decimal(value)).has_value() && *gid < 0xffffffff;
  } else if (key == "mtime") {
    return (mtime = time_of(value)).has_value();
  } else if (key.starts_with("GNU.sparse.")) {
    return take_sparse(key.substr(11), value);
  }
  return true;  // other keys are allowed and mean nothing here
}

bool TarReader::Extended::take_sparse(std::string_view key, std::string_view value) {
  sparse = true;
  if (key == "name") {
    sparse_name = value;
  } else if (key == "realsize" || key == "size") {
    return (real_size = decimal(value)).has_value();
  } else if (key == "major") {
    map_in_data = value == "1";
  } else if (key == "map") {
    return take_map(value);
  } else if (key == "offset") {
    return (pending_offset = decimal(value)).has_value();
  } else if (key == "numbytes") {
    const auto length = decimal(value);
    if (!length || !pending_offset || extents.size() >= kMaxExtents) return false;
    extents.push_back({*pending_offset, *length});
    pending_offset.reset();
  }
  return true;
}

bool TarReader::Extended::take_map(std::string_view value) {
  std::vector<std::uint64_t> numbers;
  while (!value.empty()) {
    const auto comma = value.find(',');
    const auto number = decimal(value.substr(0, comma));
    if (!number || numbers.size() >= 2 * kMaxExtents) return false;
    numbers.push_back(*number);
    value.remove_prefix(comma == std::string_view::npos ? value.size() : comma + 1);
  }
  if (numbers.size() % 2 != 0) return false;
  for (std::size_t i = 0; i < numbers.size(); i += 2) extents.push_back({numbers[i], numbers[i + 1]});
  return true;
}

Status TarReader::fill(char* buffer, std::size_t size, bool may_end) {
  std::size_t done = 0;
  while (done < size) {
    DRUPE_ASSIGN(const std::size_t got, source_(buffer + done, size - done));
    if (got == 0 && done == 0 && may_end) {
      ended_ = true;
      return {};
    }
    if (got == 0) return malformed("it ends in the middle");
    done += got;
  }
  return {};
}

/// False at the end: a block of zeros, or the end of the stream between entries.
Result<bool> TarReader::read_header(Block& block) {
  DRUPE_TRY(fill(block.data(), block.size(), true));
  if (!ended_ && std::all_of(block.begin(), block.end(), [](char c) { return c == '\0'; })) ended_ = true;
  if (ended_) return false;
  if (!checksum_fits(block)) return malformed("a header's checksum is wrong");
  return true;
}

Result<std::string> TarReader::read_text(std::uint64_t size, std::size_t limit) {
  if (size > limit) return malformed("a name or extended header is too long");
  std::string text(static_cast<std::size_t>(size), '\0');
  DRUPE_TRY(fill(text.data(), text.size(), false));
  Block rest;
  DRUPE_TRY(fill(rest.data(), tar_padding(size), false));
  return text;
}

Status TarReader::skip_rest() {
  std::array<char, 8192> nobody;
  left_ += std::exchange(padding_, 0);
  while (left_ > 0) {
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(left_, nobody.size()));
    DRUPE_TRY(fill(nobody.data(), part, false));
    left_ -= part;
  }
  return {};
}

Status TarReader::read_extended(std::uint64_t size, Extended& extended) {
  DRUPE_ASSIGN(const std::string text, read_text(size, kMaxExtended));
  std::string_view rest = text;
  while (!rest.empty()) {
    // "LENGTH key=value\n", where LENGTH counts the whole record.
    const auto space = rest.find(' ');
    const auto length = decimal(rest.substr(0, space));
    if (space == std::string_view::npos || !length || *length > rest.size() || *length < space + 2 ||
        rest[*length - 1] != '\n')
      return malformed("an extended header is no list of records");
    const std::string_view record = rest.substr(space + 1, *length - space - 2);
    rest.remove_prefix(*length);
    const auto equals = record.find('=');
    if (equals == std::string_view::npos ||
        !extended.take(record.substr(0, equals), record.substr(equals + 1)))
      return malformed("an extended header has an impossible value");
  }
  return {};
}

Result<std::optional<TarEntry>> TarReader::next() {
  DRUPE_TRY(skip_rest());
  Extended extended;
  Block block;
  while (true) {
    if (ended_) return std::optional<TarEntry>();
    DRUPE_ASSIGN(const bool there, read_header(block));
    if (!there) return std::optional<TarEntry>();
    const auto size = number_field(block, 124, 12);
    if (!size) return malformed("a header has an impossible size");
    const char type = block[156];
    if (type == 'x') {
      DRUPE_TRY(read_extended(*size, extended));
    } else if (type == 'g') {
      Extended nobody;
      DRUPE_TRY(read_extended(*size, nobody));
    } else if (type == 'L' || type == 'K') {
      DRUPE_ASSIGN(std::string text, read_text(*size, kMaxName + 1));
      text.resize(std::strlen(text.c_str()));
      (type == 'L' ? extended.path : extended.link) = std::move(text);
    } else {
      DRUPE_ASSIGN(TarEntry entry, build(block, extended));
      return std::optional<TarEntry>(std::move(entry));
    }
  }
}

Result<TarEntry> TarReader::build(const Block& block, Extended& extended) {
  TarEntry entry;
  const auto mode = number_field(block, 100, 8), uid = number_field(block, 108, 8),
             gid = number_field(block, 116, 8);
  const auto size = number_field(block, 124, 12), mtime = number_field(block, 136, 12);
  const auto major = number_field(block, 329, 8), minor = number_field(block, 337, 8);
  if (!mode || !uid || !gid || !size || *uid >= 0xffffffff || *gid >= 0xffffffff)
    return malformed("a header has an impossible number");
  entry.name = text_field(block, 0, 100);
  const std::string_view prefix = std::string_view(block.data() + 257, 6) == std::string_view("ustar\0", 6)
                                      ? text_field(block, 345, 155)
                                      : "";
  if (!prefix.empty()) entry.name = std::string(prefix) + "/" + entry.name;
  entry.link = text_field(block, 157, 100);
  if (extended.path) entry.name = *extended.path;
  if (extended.sparse_name) entry.name = *extended.sparse_name;
  if (extended.link) entry.link = *extended.link;
  entry.mode = static_cast<std::uint32_t>(*mode & 07777);
  entry.uid = static_cast<std::uint32_t>(extended.uid.value_or(*uid));
  entry.gid = static_cast<std::uint32_t>(extended.gid.value_or(*gid));
  entry.mtime_ns = extended.mtime.value_or(mtime && *mtime < static_cast<std::uint64_t>(INT64_MAX / kGiga)
                                               ? static_cast<std::int64_t>(*mtime) * kGiga
                                               : 0);
  entry.device_major = static_cast<std::uint32_t>(major.value_or(0));
  entry.device_minor = static_cast<std::uint32_t>(minor.value_or(0));
  const char type = block[156];
  constexpr std::string_view kFlags = "1234567", kTypes = "hlcbdpf";
  const auto known = kFlags.find(type);
  entry.type = known == std::string_view::npos ? 'f' : kTypes[known];
  if (entry.type == 'f' && entry.name.ends_with('/'))
    entry.type = 'd';  // as tar wrote directories before POSIX
  if (entry.name.empty() || entry.name.size() > kMaxName || entry.link.size() > kMaxName ||
      entry.name.find('\0') != std::string::npos || entry.link.find('\0') != std::string::npos)
    return malformed("a name is empty or too long");
  const std::uint64_t stored = entry.type == 'f' ? extended.size.value_or(*size) : 0;
  left_ = stored;
  padding_ = tar_padding(stored);
  entry.size = stored;
  if (entry.type != 'f') return entry;
  if (type == 'S') {
    DRUPE_TRY(old_sparse(block, entry));
  } else if (extended.sparse) {
    entry.sparse = true;
    entry.size = extended.real_size.value_or(stored);
    entry.extents = std::move(extended.extents);
    if (extended.map_in_data) DRUPE_TRY(sparse_map_in_data(entry));
  } else if (stored != 0) {
    entry.extents.push_back({0, stored});
  }
  if (!extents_fit(entry, left_)) return malformed("a sparse file's map does not fit its data");
  return entry;
}

/// GNU's first format: the map is in the header and in blocks behind it.
Status TarReader::old_sparse(const Block& block, TarEntry& entry) {
  entry.sparse = true;
  const auto real = number_field(block, 483, 12);
  if (!real) return malformed("a sparse file has an impossible size");
  entry.size = *real;
  Block more = block;
  std::size_t at = 386, count = 4;
  bool extended = block[482] != 0;
  while (true) {
    for (std::size_t i = 0; i < count; ++i, at += 24) {
      const auto offset = number_field(more, at, 12), length = number_field(more, at + 12, 12);
      if (!offset || !length || entry.extents.size() >= kMaxExtents)
        return malformed("a sparse file's map is impossible");
      if (*length != 0) entry.extents.push_back({*offset, *length});
    }
    if (!extended) return {};
    DRUPE_TRY(fill(more.data(), more.size(), false));
    extended = more[504] != 0;
    at = 0;
    count = 21;
  }
}

/// The next decimal line of the map at the front of the data.
Result<std::uint64_t> TarReader::map_number(std::string& rest) {
  while (rest.find('\n') == std::string::npos) {
    Block block;
    if (rest.size() > 32 || left_ < block.size())
      return malformed("a sparse file's map is no list of numbers");
    DRUPE_TRY(fill(block.data(), block.size(), false));
    left_ -= block.size();
    rest.append(block.data(), block.size());
  }
  const auto end = rest.find('\n');
  const auto number = decimal(std::string_view(rest).substr(0, end));
  if (!number) return malformed("a sparse file's map is no list of numbers");
  rest.erase(0, end + 1);
  return *number;
}

/// GNU's format 1.0.
Status TarReader::sparse_map_in_data(TarEntry& entry) {
  std::string rest;
  DRUPE_ASSIGN(const std::uint64_t count, map_number(rest));
  if (count > kMaxExtents) return malformed("a sparse file has too many pieces");
  for (std::uint64_t i = 0; i < count; ++i) {
    DRUPE_ASSIGN(const std::uint64_t offset, map_number(rest));
    DRUPE_ASSIGN(const std::uint64_t length, map_number(rest));
    if (length != 0) entry.extents.push_back({offset, length});
  }
  return {};
}

Result<std::size_t> TarReader::read(char* buffer, std::size_t size) {
  const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(left_, size));
  if (part == 0) return std::size_t{0};
  DRUPE_TRY(fill(buffer, part, false));
  left_ -= part;
  return part;
}

}  // namespace drupe::agent
