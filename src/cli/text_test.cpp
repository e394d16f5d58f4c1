#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/json_writer.h"
#include "cli/progress_view.h"
#include "cli/table.h"
#include "cli/tail_buffer.h"

namespace drupe::cli {
namespace {

using testing::HasSubstr;

TEST(Json, CommasQuotesAndBytes) {
  JsonWriter json;
  json.begin_object().field("a", 1).field("b", "x\"\\\n").field("bad", std::string_view("\xff"));
  json.field("list", std::vector<std::string>{"one", "two"})
      .key("inner")
      .begin_object()
      .end_object()
      .field("on", true)
      .field("pi", 3.14159);
  json.key("none").raw("null").end_object();
  EXPECT_EQ(
      json.str(),
      R"({"a":1,"b":"x\"\\\u000a","bad":"\\xff","list":["one","two"],"inner":{},"on":true,"pi":3.142,"none":null})");
}

TEST(Table, ColumnsFitAndCellsAreDisarmed) {
  EXPECT_EQ(format_table({"A", "LONG"}, {{"\xc3\xa9\xc3\xa9\xc3\xa9", "x"}, {"1", "\x1b"}}),
            "A     LONG\n\xc3\xa9\xc3\xa9\xc3\xa9   x\n1     \\x1b\n");
}

TEST(TailBuffer, KeepsTheEnd) {
  TailBuffer buffer(10);
  for (int i = 0; i < 100; ++i) buffer.append("abcdefg");
  buffer.append("0123456789");
  EXPECT_EQ(buffer.take(), "0123456789");
  EXPECT_TRUE(buffer.truncated());
}

TEST(TailBuffer, ExactlyTheLimitIsNotTruncated) {
  TailBuffer buffer(4);
  buffer.append("ab");
  buffer.append("cd");
  EXPECT_EQ(buffer.take(), "abcd");
  EXPECT_FALSE(buffer.truncated());
}

TEST(TailBuffer, OneByteOverTheLimitIsSaid) {
  TailBuffer buffer(4);
  buffer.append("abcd");
  buffer.append("e");
  EXPECT_EQ(buffer.take(), "bcde");
  EXPECT_TRUE(buffer.truncated());
}

TEST(TailBuffer, NeverBeginsInsideACharacter) {
  TailBuffer buffer(5);
  buffer.append("\xf0\x9f\x98\x80\xf0\x9f\x98\x80");
  EXPECT_EQ(buffer.take(), "\xf0\x9f\x98\x80");
}

TEST(Progress, LineShowsBarPercentAndSizes) {
  const std::string line = progress_line("Downloading", 50 << 20, 100 << 20, 200);
  EXPECT_THAT(line, HasSubstr("50 %"));
  EXPECT_THAT(line, HasSubstr("of 100 MiB"));
  EXPECT_EQ(progress_line("Booting", 0, 0, 200), "Booting");
  EXPECT_LE(progress_line(std::string(500, 'x'), 1, 2, 80).size(), 80U);
  EXPECT_THAT(progress_line("More than all", 300, 200, 200), HasSubstr("100 %"));
}

}  // namespace
}  // namespace drupe::cli
