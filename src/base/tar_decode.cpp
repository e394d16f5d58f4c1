#include "base/tar_decode.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

namespace drupe {
namespace {

constexpr std::uint64_t kMaxFile = std::uint64_t{1} << 62;
constexpr std::string_view kXattrPrefix = "SCHILY.xattr.";

std::unexpected<Error> malformed(std::string_view what) {
  return fail(ErrorCode::kIntegrity, "The tar stream is malformed: " + std::string(what));
}

std::string_view text_field(std::string_view block, std::size_t offset, std::size_t width) {
  const std::string_view field = block.substr(offset, width);
  return field.substr(0, field.find('\0'));
}

/// Octal digits between spaces and NULs, or GNU's base-256 with the highest bit set.
Result<std::int64_t> number_field(std::string_view block, std::size_t offset, std::size_t width) {
  std::string_view field = block.substr(offset, width);
  const auto first = static_cast<unsigned char>(field[0]);
  if ((first & 0x80U) != 0) {
    const bool negative = (first & 0x40U) != 0;
    std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
    for (std::size_t i = 0; i < width; ++i) {
      const auto byte = static_cast<unsigned char>(field[i]);
      const std::uint64_t low = i == 0 ? (negative ? byte | 0x80U : byte & 0x7FU) : byte;
      const std::uint64_t top = value >> 55U;
      if (i > 0 && top != 0 && top != 0x1FF) return malformed("a number is too large");
      value = i == 0 && negative ? ~std::uint64_t{0} << 8U | low : value << 8U | low;
    }
    return static_cast<std::int64_t>(value);
  }
  std::uint64_t value = 0;
  std::size_t at = field.find_first_not_of(' ');
  for (; at < field.size() && field[at] >= '0' && field[at] <= '7'; ++at) {
    if (value >> 60U != 0) return malformed("a number is too large");
    value = value * 8 + static_cast<std::uint64_t>(field[at] - '0');
  }
  if (at < field.size() && field[at] != ' ' && field[at] != '\0')
    return malformed("a number has other than octal digits");
  return static_cast<std::int64_t>(value);
}

Result<std::uint64_t> size_field(std::string_view block, std::size_t offset, std::size_t width) {
  DRUPE_ASSIGN(const std::int64_t value, number_field(block, offset, width));
  if (value < 0 || static_cast<std::uint64_t>(value) > kMaxFile)
    return malformed("a size is negative or too large");
  return static_cast<std::uint64_t>(value);
}

Result<std::uint32_t> id_field(std::string_view block, std::size_t offset, std::size_t width) {
  DRUPE_ASSIGN(const std::int64_t value, number_field(block, offset, width));
  if (value < 0 || value > std::numeric_limits<std::uint32_t>::max())
    return malformed("an id or mode is too large");
  return static_cast<std::uint32_t>(value);
}

Result<std::uint64_t> decimal(std::string_view text) {
  std::uint64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || rest != text.data() + text.size() || text.empty() || value > kMaxFile)
    return malformed("an extended header has a bad number");
  return value;
}

/// "-12.345" in nanoseconds; digits beyond those are dropped.
Result<std::int64_t> time_value(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const auto point = text.find('.');
  DRUPE_ASSIGN(const std::uint64_t seconds, decimal(text.substr(0, point)));
  if (seconds > 9'000'000'000U) return malformed("a time is out of range");
  std::int64_t fraction = 0;
  std::string_view digits = point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
  for (std::size_t i = 0; i < 9; ++i) {
    const char c = i < digits.size() ? digits[i] : '0';
    if (c < '0' || c > '9') return malformed("a time has a bad fraction");
    fraction = fraction * 10 + (c - '0');
  }
  const std::int64_t value = static_cast<std::int64_t>(seconds) * 1'000'000'000 + fraction;
  return negative ? -value : value;
}

bool checksum_is_right(std::string_view block, std::int64_t stored) {
  std::int64_t sum = 0;
  std::int64_t signed_sum = 0;  // Some old writers summed signed characters.
  for (std::size_t i = 0; i < block.size(); ++i) {
    const char c = i >= 148 && i < 156 ? ' ' : block[i];
    sum += static_cast<unsigned char>(c);
    signed_sum += static_cast<signed char>(c);
  }
  return stored == sum || stored == signed_sum;
}

/// TarEntry's letter for a header's type; NUL for types that carry no file (volume labels and the like).
char entry_type(char flag) {
  switch (flag) {
    case '0':
    case '\0':
    case '7':
    case 'S':
      return 'f';
    case '1':
      return 'h';
    case '2':
      return 'l';
    case '3':
      return 'c';
    case '4':
      return 'b';
    case '5':
      return 'd';
    case '6':
      return 'p';
    default:
      return 0;
  }
}

/// Records that are used. Others are dropped, so a stream of them costs nothing.
bool is_known_record(std::string_view key) {
  constexpr std::array<std::string_view, 11> kKnown{"path",
                                                    "linkpath",
                                                    "size",
                                                    "uid",
                                                    "gid",
                                                    "mtime",
                                                    "GNU.sparse.major",
                                                    "GNU.sparse.map",
                                                    "GNU.sparse.name",
                                                    "GNU.sparse.realsize",
                                                    "GNU.sparse.size"};
  return std::ranges::find(kKnown, key) != kKnown.end();
}

std::string header_name(std::string_view block) {
  std::string name(text_field(block, 0, 100));
  // Only POSIX headers have a prefix; GNU ("ustar  ") keeps other things there.
  const std::string_view prefix =
      block.substr(257, 6) == std::string_view("ustar\0", 6) ? text_field(block, 345, 155) : "";
  return prefix.empty() ? name : std::string(prefix) + "/" + name;
}

}  // namespace

Status TarDecoder::feed(ByteView bytes) {
  while (!bytes.empty() && state_ != State::kEnd) {
    if (state_ == State::kData) {
      DRUPE_TRY(take_data(bytes));
      continue;
    }
    if (state_ == State::kPadding) {
      const std::size_t count = std::min(padding_left_, bytes.size());
      padding_left_ -= count;
      bytes = bytes.subspan(count);
      if (padding_left_ == 0) state_ = State::kHeader;
      continue;
    }
    if (block_.empty() && bytes.size() >= kTarBlock) {
      DRUPE_TRY(take_block(bytes.first(kTarBlock)));
      bytes = bytes.subspan(kTarBlock);
      continue;
    }
    const std::size_t count = std::min(kTarBlock - block_.size(), bytes.size());
    block_.append(as_text(bytes.first(count)));
    bytes = bytes.subspan(count);
    if (block_.size() < kTarBlock) break;
    std::string block;
    block.swap(block_);
    DRUPE_TRY(take_block(as_bytes(block)));
  }
  return {};
}

Status TarDecoder::finish() {
  // A missing end mark is common and harmless; a cut entry is not.
  if (state_ == State::kEnd || (state_ == State::kHeader && block_.empty() && local_.empty() && !long_name_))
    return {};
  return fail(ErrorCode::kIntegrity, "The tar stream ends in the middle of an entry");
}

Status TarDecoder::take_block(ByteView bytes) {
  const std::string_view block = as_text(bytes);
  switch (state_) {
    case State::kMetadata: {
      const std::size_t wanted = std::min<std::uint64_t>(kTarBlock, metadata_size_ - metadata_.size());
      metadata_.append(block.substr(0, wanted));
      metadata_left_ -= kTarBlock;
      return metadata_left_ == 0 ? end_metadata() : Status();
    }
    case State::kOldSparse:
      return take_old_sparse(block);
    case State::kSparseMap:
      return take_sparse_map(block);
    default:
      return take_header(block);
  }
}

Status TarDecoder::take_header(std::string_view block) {
  if (std::ranges::all_of(block, [](char c) { return c == 0; })) {
    if (zero_block_seen_) state_ = State::kEnd;
    zero_block_seen_ = true;
    return {};
  }
  zero_block_seen_ = false;
  DRUPE_ASSIGN(const std::int64_t checksum, number_field(block, 148, 8));
  if (!checksum_is_right(block, checksum)) return malformed("a header's check sum is wrong");
  DRUPE_ASSIGN(const std::uint64_t size, size_field(block, 124, 12));
  const char flag = block[156];
  if (flag == 'x' || flag == 'g' || flag == 'L' || flag == 'K') return begin_metadata(flag, size);

  entry_ = {};
  entry_.name = header_name(block);
  entry_.link = text_field(block, 157, 100);
  entry_.type = entry_type(flag);
  // Before POSIX, a folder was a file whose name ends with a slash.
  if (entry_.type == 'f' && flag != 'S' && entry_.name.ends_with('/')) entry_.type = 'd';
  DRUPE_ASSIGN(entry_.mode, id_field(block, 100, 8));
  DRUPE_ASSIGN(entry_.uid, id_field(block, 108, 8));
  DRUPE_ASSIGN(entry_.gid, id_field(block, 116, 8));
  entry_.mode &= 07777U;
  DRUPE_ASSIGN(const std::int64_t seconds, number_field(block, 136, 12));
  if (seconds > 9'000'000'000 || seconds < -9'000'000'000) return malformed("a time is out of range");
  entry_.mtime_ns = seconds * 1'000'000'000;
  if (entry_.type == 'c' || entry_.type == 'b') {
    DRUPE_ASSIGN(entry_.device_major, id_field(block, 329, 8));
    DRUPE_ASSIGN(entry_.device_minor, id_field(block, 337, 8));
  }
  stored_left_ = size;
  entry_.size = size;
  DRUPE_TRY(apply_records());
  if (flag == 'S') {
    entry_.sparse = true;
    DRUPE_ASSIGN(entry_.size, size_field(block, 483, 12));
    return take_old_sparse(block);
  }
  const auto major = local_.find("GNU.sparse.major");
  if (entry_.type == 'f' && major != local_.end() && major->second == "1") {
    sparse_count_.reset();
    sparse_offset_.reset();
    sparse_digits_.clear();
    state_ = State::kSparseMap;
    return {};
  }
  return begin_entry();
}

Status TarDecoder::begin_metadata(char kind, std::uint64_t size) {
  // Several headers before one entry add up, or a stream of nothing else would fill the memory.
  if (kind == 'x') local_size_ += static_cast<std::size_t>(std::min<std::uint64_t>(size, kMaxFile));
  if (size > limits_.metadata || local_size_ > limits_.metadata)
    return fail(ErrorCode::kLimit, "An extended header of the tar stream is too large");
  metadata_kind_ = kind;
  metadata_.clear();
  metadata_size_ = size;
  metadata_left_ = size + tar_padding(size);
  state_ = State::kMetadata;
  return metadata_left_ == 0 ? end_metadata() : Status();
}

Status TarDecoder::end_metadata() {
  state_ = State::kHeader;
  const auto text = [this] { return metadata_.substr(0, metadata_.find('\0')); };
  if (metadata_kind_ == 'L') {
    long_name_ = text();
  } else if (metadata_kind_ == 'K') {
    long_link_ = text();
  } else {
    return read_pax(metadata_kind_ == 'g' ? global_ : local_);
  }
  return {};
}

Status TarDecoder::read_pax(Records& into) {
  std::string_view rest = metadata_;
  while (!rest.empty()) {
    std::size_t length = 0;
    const auto [after, error] = std::from_chars(rest.data(), rest.data() + rest.size(), length);
    const auto digits = static_cast<std::size_t>(after - rest.data());
    if (error != std::errc{} || length > rest.size() || length < digits + 3 || rest[digits] != ' ' ||
        rest[length - 1] != '\n')
      return malformed("an extended header has a bad record");
    const std::string_view record = rest.substr(digits + 1, length - digits - 2);
    const auto equals = record.find('=');
    if (equals == std::string_view::npos || equals == 0)
      return malformed("an extended header has a record without a name");
    std::string key(record.substr(0, equals));
    const std::string_view value = record.substr(equals + 1);
    // pax 0.0 tells a sparse map by repeating two keys; they are put into 0.1's form.
    const bool local = &into == &local_;
    if (key == "GNU.sparse.offset" || key == "GNU.sparse.numbytes") {
      if (!local) return malformed("a global header has a sparse map");
      std::string& map = into["GNU.sparse.map"];
      map += (map.empty() ? "" : ",") + std::string(value);
    } else if (is_known_record(key) || (local && key.starts_with(kXattrPrefix))) {
      into[std::move(key)] = value;
    }
    rest.remove_prefix(length);
  }
  return {};
}

Status TarDecoder::apply_records() {
  const auto find = [this](std::string_view key) -> const std::string* {
    if (const auto found = local_.find(key); found != local_.end()) return &found->second;
    const auto found = global_.find(key);
    return found != global_.end() ? &found->second : nullptr;
  };
  if (long_name_) entry_.name = *long_name_;
  if (long_link_) entry_.link = *long_link_;
  if (const auto* value = find("path")) entry_.name = *value;
  if (const auto* value = find("linkpath")) entry_.link = *value;
  if (const auto* value = find("GNU.sparse.name")) entry_.name = *value;
  if (const auto* value = find("size")) {
    DRUPE_ASSIGN(stored_left_, decimal(*value));
    entry_.size = stored_left_;
  }
  for (const auto& [key, target] : {std::pair{"uid", &entry_.uid}, std::pair{"gid", &entry_.gid}}) {
    if (const auto* value = find(key)) {
      DRUPE_ASSIGN(const std::uint64_t id, decimal(*value));
      if (id > std::numeric_limits<std::uint32_t>::max()) return malformed("an id is too large");
      *target = static_cast<std::uint32_t>(id);
    }
  }
  if (const auto* value = find("mtime")) {
    DRUPE_ASSIGN(entry_.mtime_ns, time_value(*value));
  }
  for (auto at = local_.lower_bound(kXattrPrefix); at != local_.end() && at->first.starts_with(kXattrPrefix);
       ++at)
    entry_.xattrs.emplace(at->first.substr(kXattrPrefix.size()), at->second);
  const auto* real_size = find("GNU.sparse.realsize");
  if (real_size == nullptr) real_size = find("GNU.sparse.size");
  if (real_size != nullptr && entry_.type == 'f') {
    DRUPE_ASSIGN(entry_.size, decimal(*real_size));
    entry_.sparse = true;
  }
  if (const auto* map = find("GNU.sparse.map"); map != nullptr && entry_.sparse) {
    std::string_view rest = *map;
    while (!rest.empty()) {
      std::array<std::uint64_t, 2> pair{};
      for (auto& number : pair) {
        const auto comma = rest.find(',');
        DRUPE_ASSIGN(number, decimal(rest.substr(0, comma)));
        rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
      }
      DRUPE_TRY(add_extent(pair[0], pair[1]));
    }
  }
  return {};
}

Status TarDecoder::add_extent(std::uint64_t offset, std::uint64_t length) {
  if (entry_.extents.size() >= limits_.extents)
    return fail(ErrorCode::kLimit, "A sparse file of the tar stream has too many pieces");
  const std::uint64_t after =
      entry_.extents.empty() ? 0 : entry_.extents.back().offset + entry_.extents.back().length;
  if (offset < after || length > kMaxFile || offset > entry_.size || length > entry_.size - offset)
    return malformed("a sparse file's map is out of order");
  entry_.extents.push_back({offset, length});
  return {};
}

Status TarDecoder::take_old_sparse(std::string_view block) {
  // The header has four pairs at 386 and the flag at 482; each extension block 21 pairs and the flag at 504.
  const bool header = state_ == State::kHeader;
  const std::size_t start = header ? 386 : 0;
  const std::size_t count = header ? 4 : 21;
  for (std::size_t i = 0; i < count; ++i) {
    if (block[start + i * 24] == 0) break;
    DRUPE_ASSIGN(const std::uint64_t offset, size_field(block, start + i * 24, 12));
    DRUPE_ASSIGN(const std::uint64_t length, size_field(block, start + i * 24 + 12, 12));
    DRUPE_TRY(add_extent(offset, length));
  }
  const bool more = block[header ? 482 : 504] == 1;
  state_ = State::kOldSparse;
  return more ? Status() : begin_entry();
}

Status TarDecoder::take_sparse_map(std::string_view block) {
  if (stored_left_ < kTarBlock) return malformed("a sparse file's map is longer than the file");
  stored_left_ -= kTarBlock;
  for (const char c : block) {
    if (c != '\n') {
      if (c < '0' || c > '9' || sparse_digits_.size() > 20)
        return malformed("a sparse file's map has other than numbers");
      sparse_digits_ += c;
      continue;
    }
    DRUPE_ASSIGN(const std::uint64_t number, decimal(sparse_digits_));
    sparse_digits_.clear();
    if (!sparse_count_) {
      if (number > limits_.extents)
        return fail(ErrorCode::kLimit, "A sparse file of the tar stream has too many pieces");
      sparse_count_ = number;
    } else if (!sparse_offset_) {
      sparse_offset_ = number;
    } else {
      DRUPE_TRY(add_extent(*sparse_offset_, number));
      sparse_offset_.reset();
    }
    // The rest of the last block is filling.
    if (*sparse_count_ == entry_.extents.size() && !sparse_offset_) return begin_entry();
  }
  return {};
}

Status TarDecoder::begin_entry() {
  while (entry_.name.size() > 1 && entry_.name.ends_with('/')) entry_.name.pop_back();
  if (entry_.name.find('\0') != std::string::npos || entry_.link.find('\0') != std::string::npos)
    return malformed("a name holds a zero byte");
  local_.clear();
  local_size_ = 0;
  long_name_.reset();
  long_link_.reset();
  extent_ = 0;
  extent_used_ = 0;
  if (entry_.sparse) {
    std::uint64_t total = 0;
    for (const TarExtent& extent : entry_.extents) total += extent.length;
    if (total != stored_left_) return malformed("a sparse file's map does not match its data");
  }
  padding_left_ = tar_padding(stored_left_);
  // Links with a size have data in some old archives; it is passed over. So are entries of unknown type.
  if (entry_.type != 'f') entry_.size = 0;
  if (entry_.type != 0) DRUPE_TRY(events_.on_entry(entry_));
  state_ = State::kData;
  return stored_left_ == 0 ? end_entry() : Status();
}

Status TarDecoder::take_data(ByteView& bytes) {
  std::uint64_t count = std::min<std::uint64_t>(stored_left_, bytes.size());
  std::uint64_t offset = entry_.size - stored_left_;
  if (entry_.sparse) {
    while (entry_.extents[extent_].length == extent_used_) {
      ++extent_;
      extent_used_ = 0;
    }
    const TarExtent& extent = entry_.extents[extent_];
    count = std::min(count, extent.length - extent_used_);
    offset = extent.offset + extent_used_;
    extent_used_ += count;
  }
  if (entry_.type == 'f') DRUPE_TRY(events_.on_data(offset, bytes.first(count)));
  bytes = bytes.subspan(count);
  stored_left_ -= count;
  return stored_left_ == 0 ? end_entry() : Status();
}

Status TarDecoder::end_entry() {
  state_ = padding_left_ > 0 ? State::kPadding : State::kHeader;
  if (entry_.type == 0 || !events_.on_entry_end) return {};
  return events_.on_entry_end();
}

}  // namespace drupe
