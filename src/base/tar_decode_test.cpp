#include "base/tar_decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace drupe {
namespace {

using testing::HasSubstr;

struct Seen {
  TarEntry entry;
  std::string data;  ///< Holes are '.'.
  bool complete = false;
};

/// Feeds `bytes` in pieces of `step` bytes.
Result<std::vector<Seen>> decode(std::string_view bytes, std::size_t step = 100'000,
                                 TarDecodeLimits limits = {}) {
  std::vector<Seen> seen;
  TarDecoder decoder(
      {[&](const TarEntry& entry) -> Status {
         seen.push_back(
             {entry,
              std::string(static_cast<std::size_t>(std::min<std::uint64_t>(entry.size, 1 << 20)), '.')});
         return {};
       },
       [&](std::uint64_t offset, ByteView data) -> Status {
         if (offset + data.size() > seen.back().data.size()) return fail(ErrorCode::kHost, "beyond the file");
         seen.back().data.replace(offset, data.size(), as_text(data));
         return {};
       },
       [&]() -> Status {
         seen.back().complete = true;
         return {};
       }},
      limits);
  while (!bytes.empty()) {
    DRUPE_TRY(decoder.feed(as_bytes(bytes.substr(0, step))));
    bytes.remove_prefix(std::min(step, bytes.size()));
  }
  DRUPE_TRY(decoder.finish());
  return seen;
}

std::string with_data(const TarEntry& entry, const std::string& data) {
  return encode_tar_entry(entry) + data + std::string(tar_padding(data.size()), '\0');
}

std::string sample() {
  std::string bytes = encode_tar_entry({.name = "d", .type = 'd', .mode = 0755});
  bytes += with_data({.name = "d/" + std::string(300, 'n'),
                      .mode = 04711,
                      .uid = 1U << 23U,
                      .gid = 5,
                      .size = 5,
                      .mtime_ns = -1'500'000'000},
                     "hello");
  bytes += with_data({.name = "s", .size = 5000, .sparse = true, .extents = {{10, 3}, {4000, 2}, {5000, 0}}},
                     "abcde");
  bytes += encode_tar_entry({.name = "l", .type = 'l', .link = std::string(200, 't')});
  bytes += encode_tar_entry({.name = "c", .type = 'c', .device_major = 1, .device_minor = 3});
  return bytes + tar_end() + "garbage after the end";
}

TEST(TarDecode, ReadsWhatTheEncoderWritesInAnyPieces) {
  for (const std::size_t step : {1U, 7U, 511U, 512U, 513U, 100'000U}) {
    const auto seen = decode(sample(), step);
    ASSERT_TRUE(seen) << to_string(seen.error());
    ASSERT_EQ(seen->size(), 5U);
    EXPECT_EQ((*seen)[0].entry.name, "d");
    EXPECT_EQ((*seen)[0].entry.type, 'd');
    EXPECT_EQ((*seen)[1].entry.name, "d/" + std::string(300, 'n'));
    EXPECT_EQ((*seen)[1].entry.mode, 04711U);
    EXPECT_EQ((*seen)[1].entry.uid, 1U << 23U);
    EXPECT_EQ((*seen)[1].entry.mtime_ns, -1'500'000'000);
    EXPECT_EQ((*seen)[1].data, "hello");
    EXPECT_EQ((*seen)[2].entry.name, "s");
    EXPECT_EQ((*seen)[2].data.substr(9, 5), ".abc.");
    EXPECT_EQ((*seen)[2].data.substr(3999, 4), ".de.");
    EXPECT_EQ((*seen)[3].entry.link, std::string(200, 't'));
    EXPECT_EQ((*seen)[4].entry.device_minor, 3U);
    for (const Seen& one : *seen) EXPECT_TRUE(one.complete);
  }
}

TEST(TarDecode, EveryCutInsideAnEntryIsSaid) {
  const std::string whole = with_data({.name = std::string(150, 'x'), .size = 700}, std::string(700, 'y'));
  for (std::size_t size = 1; size < whole.size(); size += 13)
    EXPECT_FALSE(decode(std::string_view(whole).substr(0, size))) << size;
  EXPECT_TRUE(decode(whole));
  EXPECT_TRUE(decode(""));
}

TEST(TarDecode, AChangedHeaderIsRefused) {
  std::string bytes = sample();
  bytes[0] = 'e';
  const auto seen = decode(bytes);
  ASSERT_FALSE(seen);
  EXPECT_EQ(seen.error().code, ErrorCode::kIntegrity);
}

TEST(TarDecode, LimitsHold) {
  const std::string named = encode_tar_entry({.name = std::string(5000, 'n')});
  EXPECT_EQ(decode(named, 512, {.metadata = 1000}).error().code, ErrorCode::kLimit);
  TarEntry holes{.name = "s", .size = 1 << 20, .sparse = true};
  for (std::uint64_t i = 0; i < 100; ++i) holes.extents.push_back({i * 100, 0});
  EXPECT_EQ(decode(encode_tar_entry(holes), 512, {.extents = 10}).error().code, ErrorCode::kLimit);
}

TEST(TarDecode, ExtendedAttributesAreBytesOfTheirEntryOnly) {
  const std::string value("\0=\n\xff", 4);
  const auto seen = decode(encode_tar_entry({.name = "a", .xattrs = {{"user.x", value}, {"user.y", ""}}}) +
                           encode_tar_entry({.name = "b"}));
  ASSERT_TRUE(seen) << to_string(seen.error());
  EXPECT_EQ((*seen)[0].entry.xattrs.at("user.x"), value);
  EXPECT_EQ((*seen)[0].entry.xattrs.at("user.y"), "");
  EXPECT_TRUE((*seen)[1].entry.xattrs.empty());
}

TEST(TarDecode, HeadersWithoutAnEntryDoNotPileUp) {
  std::string bytes;
  for (int i = 0; i < 10; ++i) {
    const std::string both =
        encode_tar_entry({.name = "a", .xattrs = {{"user." + std::to_string(i), std::string(600, 'v')}}});
    bytes += both.substr(0, both.size() - kTarBlock);
  }
  EXPECT_EQ(decode(bytes, 512, {.metadata = 4000}).error().code, ErrorCode::kLimit);
}

TEST(TarDecode, SparseMapsMustFitTheirFile) {
  EXPECT_FALSE(decode(with_data({.name = "s", .size = 10, .sparse = true, .extents = {{5, 6}}}, "abcdef")));
  EXPECT_FALSE(
      decode(with_data({.name = "s", .size = 100, .sparse = true, .extents = {{50, 1}, {20, 1}}}, "ab")));
  EXPECT_FALSE(decode(
      with_data({.name = "s", .size = 100, .sparse = true, .extents = {{~std::uint64_t{0}, 1}}}, "a")));
}

// The form of tar --format=gnu --sparse: a file of 20 KiB with data at 8192 and a name of 120 letters.
// letters long.
TEST(TarDecode, GnuLongNameAndOldSparse) {
  const auto header = [](std::string name, char type, std::uint64_t size) {
    std::string block = encode_tar_entry({.name = "x", .size = 0});
    block.replace(0, 100, 100, '\0');
    block.replace(0, name.size(), name);
    char digits[13];
    std::snprintf(digits, sizeof digits, "%011llo", static_cast<unsigned long long>(size));
    block.replace(124, 12, digits, 12);
    block[156] = type;
    block.replace(257, 8, "ustar  \0", 8);
    return block;
  };
  const auto sum = [](std::string block) {
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < 512; ++i)
      total += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(block[i]);
    char digits[8];
    std::snprintf(digits, sizeof digits, "%06o", static_cast<unsigned>(total));
    block.replace(148, 7, digits, 7);
    return block;
  };
  const std::string name(120, 'n');
  std::string bytes =
      sum(header("././@LongLink", 'L', name.size() + 1)) + name + std::string(512 - name.size(), '\0');
  std::string sparse = header("short", 'S', 512);
  sparse.replace(386, 24, std::string("00000020000\0", 12) + std::string("00000001000\0", 12));
  sparse.replace(410, 24, std::string("00000050000\0", 12) + std::string("00000000000\0", 12));
  sparse.replace(483, 12, "00000050000\0", 12);
  bytes += sum(sparse) + "x" + std::string(511, '\0') + tar_end();
  const auto seen = decode(bytes);
  ASSERT_TRUE(seen) << to_string(seen.error());
  ASSERT_EQ(seen->size(), 1U);
  EXPECT_EQ((*seen)[0].entry.name, name);
  EXPECT_EQ((*seen)[0].entry.size, 20480U);
  EXPECT_EQ((*seen)[0].data.substr(8191, 3), std::string(".x\0", 3));
}

TEST(TarDecode, Base256Numbers) {
  std::string block = encode_tar_entry({.name = "big", .type = 'l', .link = "x"});
  block.replace(108, 8, std::string("\x80\0\0\0\0\x10\0\0", 8));
  block.replace(136, 12, std::string(11, '\xff') + '\xfe');
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < 512; ++i)
    total += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(block[i]);
  char digits[8];
  std::snprintf(digits, sizeof digits, "%06o", static_cast<unsigned>(total));
  block.replace(148, 7, digits, 7);
  const auto seen = decode(block);
  ASSERT_TRUE(seen) << to_string(seen.error());
  EXPECT_EQ((*seen)[0].entry.uid, 1U << 20U);
  EXPECT_EQ((*seen)[0].entry.mtime_ns, -2'000'000'000);
}

}  // namespace
}  // namespace drupe
