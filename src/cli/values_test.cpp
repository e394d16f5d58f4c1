#include "cli/values.h"

#include <signal.h>

#include <gtest/gtest.h>

namespace drupe::cli {
namespace {

TEST(Size, UnitsArePowersOf1024) {
  EXPECT_EQ(*parse_size("512m"), std::uint64_t{512} << 20);
  EXPECT_EQ(*parse_size("8G"), std::uint64_t{8} << 30);
  EXPECT_EQ(*parse_size("1.5GiB"), std::uint64_t{3} << 29);
  EXPECT_EQ(*parse_size("17"), 17U);
  EXPECT_EQ(*parse_size("4kb"), 4096U);
  for (const char* bad : {"", "m", "-1", "1x", "1 m", "nan", "inf", "1e30g", "0x10", "99999999999t", "-0"})
    EXPECT_FALSE(parse_size(bad)) << bad;
}

TEST(Memory, SmallBareNumbersAreMib) {
  EXPECT_EQ(*parse_memory_mib("512"), 512U);
  EXPECT_EQ(*parse_memory_mib("1"), 1U);
  EXPECT_EQ(*parse_memory_mib("536870912"), 512U);
  EXPECT_EQ(*parse_memory_mib("1g"), 1024U);
  EXPECT_EQ(*parse_memory_mib("100k"), 1U);
}

TEST(Duration, ZeroNegativeAndHugeAreRefused) {
  EXPECT_EQ(*parse_duration_ms("10"), 10'000U);
  EXPECT_EQ(*parse_duration_ms("0.5"), 500U);
  EXPECT_EQ(*parse_duration_ms("250ms"), 250U);
  EXPECT_EQ(*parse_duration_ms("2h"), 7'200'000U);
  EXPECT_EQ(*parse_duration_ms("1h30m"), 5'400'000U);
  EXPECT_EQ(*parse_duration_ms("1m1s250ms"), 61'250U);
  for (const char* bad : {"0", "-1", "1000000000000", "5x", "", "s", "1:30"})
    EXPECT_FALSE(parse_duration_ms(bad)) << bad;
}

TEST(Signal, NamesAndNumbers) {
  EXPECT_EQ(*parse_signal("TERM"), SIGTERM);
  EXPECT_EQ(*parse_signal("sigkill"), SIGKILL);
  EXPECT_EQ(*parse_signal("64"), 64);
  for (const char* bad : {"", "0", "65", "-9", "TERMINATE", "9x"}) EXPECT_FALSE(parse_signal(bad)) << bad;
  EXPECT_EQ(signal_name(SIGINT), "INT");
  EXPECT_EQ(signal_name(63), "63");
}

TEST(Format, SizesAgesTimes) {
  EXPECT_EQ(format_size(17), "17 B");
  EXPECT_EQ(format_size(1536), "1.5 KiB");
  EXPECT_EQ(format_size(std::uint64_t{512} << 20), "512 MiB");
  EXPECT_EQ(format_age(0), "less than a second");
  EXPECT_EQ(format_age(1'000'000'000), "1 second");
  EXPECT_EQ(format_age(std::int64_t{90} * 1'000'000'000), "90 seconds");
  EXPECT_EQ(format_age(std::int64_t{3} * 86400 * 1'000'000'000), "3 days");
  EXPECT_EQ(format_age(-5), "less than a second");
  EXPECT_EQ(format_time(0), "");
  EXPECT_EQ(format_time(1'000'000'007), "1970-01-01T00:00:01.000000007Z");
}

TEST(Text, Utf8IsStrict) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("caf\xc3\xa9 \xe2\x80\xa8 \xf0\x9f\x98\x80"));
  for (const char* bad :
       {"\xc3\x28", "\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x80", "\x80"})
    EXPECT_FALSE(is_utf8(bad)) << bad;
}

TEST(Text, PrintableDisarmsTerminals) {
  EXPECT_EQ(printable("a\x1b[2Jb\n"), "a\\x1b[2Jb\\x0a");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("\xc3\xa9"), "\xc3\xa9");
}

TEST(Text, Base64) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("\xff\xfe\xfd"), "//79");
}

}  // namespace
}  // namespace drupe::cli
