#include "base/tar_encode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace drupe {
namespace {

// Offsets and widths of the ustar header.
struct Field {
  std::size_t offset, width;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kUid{108, 8}, kGid{116, 8}, kSize{124, 12}, kMtime{136, 12},
    kChecksum{148, 8}, kLink{157, 100}, kMagic{257, 8}, kMajor{329, 8}, kMinor{337, 8};
constexpr std::size_t kTypeOffset = 156;

using Header = std::array<char, kTarBlock>;

void put_text(Header& header, Field field, std::string_view text) {
  std::copy_n(text.data(), std::min(text.size(), field.width), header.data() + field.offset);
}

constexpr std::uint64_t octal_limit(Field field) {
  return std::uint64_t{1} << (3 * (field.width - 1));
}

/// Octal digits and a NUL; what does not fit is 0 here and told in a pax record.
void put_octal(Header& header, Field field, std::uint64_t value) {
  if (value >= octal_limit(field)) value = 0;
  header[field.offset + field.width - 1] = 0;
  for (std::size_t i = field.width - 1; i-- > 0; value /= 8)
    header[field.offset + i] = static_cast<char>('0' + value % 8);
}

std::string finish(Header& header, char type) {
  header[kTypeOffset] = type;
  put_text(header, kMagic,
           std::string_view("ustar\0"
                            "00",
                            8));
  std::memset(header.data() + kChecksum.offset, ' ', kChecksum.width);
  std::uint64_t sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put_octal(header, {kChecksum.offset, 7}, sum);
  return {header.data(), header.size()};
}

/// "LENGTH key=value\n", where LENGTH counts itself.
void add_record(std::string& records, std::string_view key, std::string_view value) {
  const std::size_t rest = key.size() + value.size() + 3;
  std::size_t length = rest + 1;
  while (std::to_string(length).size() + rest != length) length = std::to_string(length).size() + rest;
  records.append(std::to_string(length)).append(" ").append(key).append("=").append(value).append("\n");
}

std::string seconds_text(std::int64_t nanoseconds) {
  constexpr std::int64_t kGiga = 1'000'000'000;
  std::int64_t seconds = nanoseconds / kGiga;
  std::int64_t fraction = nanoseconds % kGiga;
  std::string sign;
  if (nanoseconds < 0) {
    sign = "-";
    seconds = -seconds;
    fraction = -fraction;
  }
  std::string digits = std::to_string(fraction);
  digits.insert(0, 9 - digits.size(), '0');
  return sign + std::to_string(seconds) + "." + digits;
}

std::string padded(std::string bytes) {
  bytes.append(tar_padding(bytes.size()), '\0');
  return bytes;
}

/// Number of extents, then offset and length of each, a decimal number a line, filled up to whole blocks.
std::string sparse_map(const TarEntry& entry) {
  std::string map = std::to_string(entry.extents.size()) + "\n";
  for (const TarExtent& extent : entry.extents)
    map += std::to_string(extent.offset) + "\n" + std::to_string(extent.length) + "\n";
  return padded(std::move(map));
}

char type_flag(char type) {
  switch (type) {
    case 'd':
      return '5';
    case 'l':
      return '2';
    case 'h':
      return '1';
    case 'c':
      return '3';
    case 'b':
      return '4';
    case 'p':
      return '6';
    default:
      return '0';
  }
}

std::string pax_records(const TarEntry& entry, const std::string& name, std::uint64_t stored_size) {
  std::string records;
  // The real name of a sparse file is in its own record: old readers then make a file with an obviously odd
  // name.
  if (entry.sparse) {
    add_record(records, "GNU.sparse.major", "1");
    add_record(records, "GNU.sparse.minor", "0");
    add_record(records, "GNU.sparse.name", name);
    add_record(records, "GNU.sparse.realsize", std::to_string(entry.size));
  } else if (name.size() > kName.width) {
    add_record(records, "path", name);
  }
  if (entry.link.size() > kLink.width) add_record(records, "linkpath", entry.link);
  if (stored_size >= octal_limit(kSize)) add_record(records, "size", std::to_string(stored_size));
  if (entry.uid >= octal_limit(kUid)) add_record(records, "uid", std::to_string(entry.uid));
  if (entry.gid >= octal_limit(kGid)) add_record(records, "gid", std::to_string(entry.gid));
  constexpr std::int64_t kGiga = 1'000'000'000;
  const bool plain_time = entry.mtime_ns >= 0 && entry.mtime_ns % kGiga == 0 &&
                          static_cast<std::uint64_t>(entry.mtime_ns / kGiga) < octal_limit(kMtime);
  if (!plain_time) add_record(records, "mtime", seconds_text(entry.mtime_ns));
  for (const auto& [key, value] : entry.xattrs) add_record(records, "SCHILY.xattr." + key, value);
  return records;
}

std::string pax_header(const std::string& records) {
  Header header{};
  put_text(header, kName, "pax_header");
  put_octal(header, kMode, 0644);
  put_octal(header, kUid, 0);
  put_octal(header, kGid, 0);
  put_octal(header, kSize, records.size());
  put_octal(header, kMtime, 0);
  return finish(header, 'x') + padded(records);
}

}  // namespace

std::uint64_t tar_data_size(const TarEntry& entry) {
  if (entry.type != 'f') return 0;
  if (!entry.sparse) return entry.size;
  std::uint64_t total = 0;
  for (const TarExtent& extent : entry.extents) total += extent.length;
  return total;
}

std::string encode_tar_entry(const TarEntry& entry) {
  std::string name = entry.name;
  if (entry.type == 'd' && !name.ends_with('/')) name += '/';
  const std::string map = entry.sparse ? sparse_map(entry) : std::string();
  const std::uint64_t stored = map.size() + tar_data_size(entry);
  const std::string records = pax_records(entry, name, stored);

  Header header{};
  put_text(header, kName, entry.sparse ? "sparse_file" : std::string_view(name).substr(0, kName.width));
  put_octal(header, kMode, entry.mode & 07777U);
  put_octal(header, kUid, entry.uid);
  put_octal(header, kGid, entry.gid);
  put_octal(header, kSize, stored);
  put_octal(header, kMtime,
            entry.mtime_ns > 0 ? static_cast<std::uint64_t>(entry.mtime_ns / 1'000'000'000) : 0);
  put_text(header, kLink, entry.link);
  put_octal(header, kMajor, entry.device_major);
  put_octal(header, kMinor, entry.device_minor);
  return (records.empty() ? std::string() : pax_header(records)) + finish(header, type_flag(entry.type)) +
         map;
}

std::string tar_end() {
  return std::string(2 * kTarBlock, '\0');
}

}  // namespace drupe
