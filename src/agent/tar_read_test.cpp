#include "agent/tar_read.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace drupe::agent {
namespace {

struct Member {
  TarEntry entry;
  std::string data;  ///< As stored.
};

/// Reads a whole archive in pieces of `step` bytes.
Result<std::vector<Member>> read_archive(std::string bytes, std::size_t step = 100'000) {
  std::size_t at = 0;
  TarReader reader([&](char* buffer, std::size_t size) -> Result<std::size_t> {
    const std::size_t part = std::min({size, step, bytes.size() - at});
    std::memcpy(buffer, bytes.data() + at, part);
    at += part;
    return part;
  });
  std::vector<Member> members;
  while (true) {
    DRUPE_ASSIGN(auto entry, reader.next());
    if (!entry) return members;
    Member member{*std::move(entry), {}};
    while (true) {
      char buffer[777];
      DRUPE_ASSIGN(const std::size_t got, reader.read(buffer, sizeof buffer));
      if (got == 0) break;
      member.data.append(buffer, got);
    }
    members.push_back(std::move(member));
  }
}

std::string file(TarEntry entry, const std::string& data) {
  return encode_tar_entry(entry) + data + std::string(tar_padding(data.size()), '\0');
}

TarEntry plain(const std::string& name, std::uint64_t size) {
  TarEntry entry;
  entry.name = name;
  entry.mode = 0755;
  entry.uid = 1000;
  entry.gid = 1001;
  entry.size = size;
  entry.mtime_ns = 1'700'000'000'123'456'789;
  return entry;
}

TEST(TarReader, ReadsWhatTheEncoderWrites) {
  TarEntry link = plain("dir/link", 0);
  link.type = 'l';
  link.link = std::string(300, 't');
  TarEntry device = plain("null", 0);
  device.type = 'c';
  device.device_major = 1;
  device.device_minor = 3;
  TarEntry directory = plain("dir", 0);
  directory.type = 'd';
  const std::string long_name = std::string(200, 'd') + "/" + std::string(255, 'n');
  const std::string bytes = encode_tar_entry(directory) + file(plain("dir/a", 5), "hello") +
                            encode_tar_entry(link) + encode_tar_entry(device) +
                            file(plain(long_name, 513), std::string(513, 'x')) + tar_end();
  for (const std::size_t step : {std::size_t{1}, std::size_t{511}, std::size_t{100'000}}) {
    const auto members = read_archive(bytes, step);
    ASSERT_TRUE(members) << members.error().message;
    ASSERT_EQ(members->size(), 5U);
    EXPECT_EQ((*members)[0].entry.type, 'd');
    EXPECT_EQ((*members)[1].data, "hello");
    EXPECT_EQ((*members)[1].entry.mtime_ns, 1'700'000'000'123'456'789);
    EXPECT_EQ((*members)[1].entry.uid, 1000U);
    EXPECT_EQ((*members)[1].entry.mode, 0755U);
    EXPECT_EQ((*members)[2].entry.link, std::string(300, 't'));
    EXPECT_EQ((*members)[3].entry.device_minor, 3U);
    EXPECT_EQ((*members)[4].entry.name, long_name);
    EXPECT_EQ((*members)[4].data, std::string(513, 'x'));
  }
}

TEST(TarReader, ReadsSparseFiles) {
  TarEntry sparse = plain("holes", 1'000'000'000'000);
  sparse.sparse = true;
  sparse.extents = {{4096, 3}, {999'999'999'990, 10}};
  const auto members = read_archive(file(sparse, "abc0123456789") + file(plain("next", 1), "n") + tar_end());
  ASSERT_TRUE(members) << members.error().message;
  ASSERT_EQ(members->size(), 2U);
  EXPECT_EQ((*members)[0].entry.name, "holes");
  EXPECT_EQ((*members)[0].entry.size, 1'000'000'000'000U);
  ASSERT_EQ((*members)[0].entry.extents.size(), 2U);
  EXPECT_EQ((*members)[0].entry.extents[1].offset, 999'999'999'990U);
  EXPECT_EQ((*members)[0].data, "abc0123456789");
  EXPECT_EQ((*members)[1].data, "n");
}

TEST(TarReader, PassesOverUnreadData) {
  const std::string bytes =
      file(plain("a", 100'000), std::string(100'000, 'a')) + file(plain("b", 1), "b") + tar_end();
  std::size_t at = 0;
  TarReader reader([&](char* buffer, std::size_t size) -> Result<std::size_t> {
    const std::size_t part = std::min(size, bytes.size() - at);
    std::memcpy(buffer, bytes.data() + at, part);
    at += part;
    return part;
  });
  ASSERT_EQ((*reader.next())->name, "a");
  ASSERT_EQ((*reader.next())->name, "b");
  EXPECT_FALSE(reader.next()->has_value());
  EXPECT_FALSE(reader.next()->has_value());
}

void fix_checksum(std::string& bytes) {
  std::memset(bytes.data() + 148, ' ', 8);
  unsigned sum = 0;
  for (std::size_t i = 0; i < kTarBlock; ++i) sum += static_cast<unsigned char>(bytes[i]);
  for (int i = 5; i >= 0; --i, sum /= 8)
    bytes[148 + static_cast<std::size_t>(i)] = static_cast<char>('0' + sum % 8);
  bytes[154] = '\0';
}

TarEntry whole_seconds(const std::string& name, std::uint64_t size) {
  TarEntry entry = plain(name, size);
  entry.mtime_ns = 1'700'000'000'000'000'000;
  return entry;
}

TEST(TarReader, ReadsBase256Numbers) {
  std::string bytes = file(whole_seconds("big", 3), "abc");
  bytes.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\0\x03", 12));
  bytes.replace(108, 8, std::string("\x80\0\0\0\x7f\xff\xff\xff", 8));
  fix_checksum(bytes);
  const auto members = read_archive(bytes);
  ASSERT_TRUE(members) << members.error().message;
  EXPECT_EQ((*members)[0].data, "abc");
  EXPECT_EQ((*members)[0].entry.uid, 0x7fffffffU);
}

TEST(TarReader, ReadsGnuLongNames) {
  const std::string name(150, 'n');
  std::string head = file(whole_seconds("@LongLink", name.size() + 1), name + std::string(1, '\0'));
  head[156] = 'L';
  fix_checksum(head);
  const auto members = read_archive(head + file(whole_seconds("short", 1), "x") + tar_end());
  ASSERT_TRUE(members) << members.error().message;
  ASSERT_EQ(members->size(), 1U);
  EXPECT_EQ((*members)[0].entry.name, name);
}

TEST(TarReader, RefusesDamage) {
  const std::string good = file(whole_seconds("file", 600), std::string(600, 'x')) + tar_end();
  EXPECT_TRUE(read_archive(good));
  std::string bad = good;
  bad[0] = 'F';
  EXPECT_FALSE(read_archive(bad)) << "checksum";
  EXPECT_FALSE(read_archive(good.substr(0, 300))) << "cut in a header";
  EXPECT_FALSE(read_archive(good.substr(0, 1000))) << "cut in the data";
  bad = good;
  bad.replace(124, 12, std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12));
  fix_checksum(bad);
  EXPECT_FALSE(read_archive(bad)) << "negative size";
  bad = good;
  bad.replace(124, 12, std::string("\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12));
  fix_checksum(bad);
  EXPECT_FALSE(read_archive(bad)) << "size beyond 64 bits";
}

std::string with_pax(const std::string& records) {
  std::string head = file(whole_seconds("pax", records.size()), records);
  head[156] = 'x';
  fix_checksum(head);
  return head + file(whole_seconds("file", 4), "data") + tar_end();
}

TEST(TarReader, RefusesImpossibleExtendedHeaders) {
  EXPECT_TRUE(read_archive(with_pax("12 path=abc\n")));
  for (const char* records :
       {"13 path=abc\n", "99999999999999999999 path=abc\n", "3 x", "0 path=abc\n", "12 path=abcX",
        "11 pathabc\n", "19 size=9999999999999999999999\n", "14 uid=-1\n", "15 mtime=abc\n"})
    EXPECT_FALSE(read_archive(with_pax(records))) << records;
  // A map whose pieces overlap, lie outside of the file, or are not what is stored.
  for (const char* map : {"0,2,1,2", "0,4", "8,4", "0,3", "0,4,4", "x"}) {
    std::string records;
    for (const std::string& record :
         {std::string("GNU.sparse.size=3"), std::string("GNU.sparse.map=") + map}) {
      const std::size_t size = record.size() + 4;
      records += std::to_string(size) + " " + record + "\n";
    }
    EXPECT_FALSE(read_archive(with_pax(records))) << map;
  }
}

}  // namespace
}  // namespace drupe::agent
