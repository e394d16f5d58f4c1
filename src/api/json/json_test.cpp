// JSON out (pure ASCII) and in (bounded).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/json/base64.h"
#include "api/json/value.h"
#include "api/json/writer.h"

namespace drupe::api {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  append_json_text(out, text);
  return out;
}

TEST(JsonText, IsAscii) {
  EXPECT_EQ(escaped("a\"\\\n\t\x7f"), R"(a\"\\\n\u0009\u007f)");
  EXPECT_EQ(escaped("\xc2\x85\xe2\x80\xa8\xe2\x80\xa9"), R"(\u0085\u2028\u2029)");
  EXPECT_EQ(escaped("\xf0\x9f\x98\x80"), R"(\ud83d\ude00)");
  EXPECT_EQ(escaped(std::string("\0", 1)), R"(\u0000)");
}

TEST(JsonText, BytesThatAreNoUtf8AreReplaced) {
  EXPECT_EQ(escaped("a\xff"
                    "b"),
            R"(a\ufffdb)");
  EXPECT_EQ(escaped("\xc3\x28"), R"(\ufffd()");
  EXPECT_EQ(escaped("\xed\xa0\x80"), R"(\ufffd\ufffd\ufffd)");                      // a surrogate
  EXPECT_EQ(escaped("\xc0\xaf\xe0\x80\xaf"), R"(\ufffd\ufffd\ufffd\ufffd\ufffd)");  // overlong
  EXPECT_EQ(escaped("\xf4\x90\x80\x80"), R"(\ufffd\ufffd\ufffd\ufffd)");
  EXPECT_EQ(escaped("\xe2\x80"), R"(\ufffd)");
}

TEST(JsonText, StopsAtItsBound) {
  std::string out;
  EXPECT_EQ(append_json_text(out, "\xf0\x9f\x98\x80\xf0\x9f\x98\x80", 15), 4U);
  EXPECT_EQ(out, R"(\ud83d\ude00)");
}

TEST(JsonText, CharactersAreNotCut) {
  EXPECT_EQ(whole_characters("abc"), 3U);
  EXPECT_EQ(whole_characters("ab\xc3"), 2U);
  EXPECT_EQ(whole_characters("\xe2\x80"), 0U);
  EXPECT_EQ(whole_characters("\xe2\x80\xa8"), 3U);
  EXPECT_EQ(whole_characters("a\xf0\x9f\x98"), 1U);
  EXPECT_EQ(whole_characters("a\xff"), 2U);  // begins nothing
  EXPECT_EQ(whole_characters("\x80\x80\x80\x80"), 4U);
}

TEST(JsonWriter, NestsAndSeparates) {
  JsonWriter json;
  json.begin_object()
      .field("a", 1)
      .field("b", true)
      .key("c")
      .begin_array()
      .text("x")
      .begin_object()
      .end_object();
  json.end_array()
      .field("d", std::vector<std::string>{})
      .field("e", std::optional<std::string>())
      .field("f", 1.5);
  EXPECT_EQ(json.end_object().take(), R"({"a":1,"b":true,"c":["x",{}],"d":[],"f":1.500})");
}

TEST(Base64, GoesThereAndBack) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(base64_decode(base64_encode(bytes)), bytes);
    bytes += static_cast<char>(i);
  }
  EXPECT_EQ(base64_encode("a"), "YQ==");
  EXPECT_EQ(base64_encode("ab"), "YWI=");
  for (const char* text : {"YQ", "YQ=", "Y===", "YR==", "Y!==", "====", "YQ==YQ=="})
    EXPECT_FALSE(base64_decode(text)) << text;
}

TEST(JsonTime, HasThreeDigitsAndZ) {
  EXPECT_EQ(timestamp(1'767'323'045'210'999'999), "2026-01-02T03:04:05.210Z");
  EXPECT_EQ(timestamp(0), "1970-01-01T00:00:00.000Z");
}

TEST(JsonReader, ReadsValues) {
  const auto value =
      parse_json(R"({"t":"\u00e9","i":-5,"r":1.0,"b":false,"n":null,"a":[1,[2]],"o":{"x":"y"}})");
  ASSERT_TRUE(value) << value.error().message;
  EXPECT_EQ(**text_field(*value, "t"), "\xc3\xa9");
  EXPECT_EQ(**integer_field(*value, "i", -10, 10), -5);
  EXPECT_EQ(**bool_field(*value, "b"), false);
  EXPECT_FALSE(*text_field(*value, "n"));
  EXPECT_FALSE(*text_field(*value, "missing"));
  EXPECT_EQ((**map_field(*value, "o")).at("x"), "y");
  EXPECT_EQ(value->find("a")->items.at(1).items.at(0).integer, 2);
  EXPECT_FALSE(text_field(*value, "i"));
  EXPECT_FALSE(integer_field(*value, "r", 0, 5));
  EXPECT_FALSE(integer_field(*value, "i", 0, 5));
  EXPECT_FALSE(texts_field(*value, "a"));
  EXPECT_FALSE(bool_field(*value, "t"));
}

TEST(JsonReader, IsBounded) {
  EXPECT_FALSE(parse_json(std::string(100, '[') + std::string(100, ']')));
  EXPECT_FALSE(parse_json("[1,2,3]", {32, 3}));
  EXPECT_TRUE(parse_json("[1,2,3]", {32, 4}));
  for (const char* text : {"", "{", "{\"a\":1,\"a\":2}", "{\"a\":{\"b\":1,\"b\":1}}", "\"\xff\"", "[1] x",
                           "{'a':1}", "NaN", "01"})
    EXPECT_FALSE(parse_json(text)) << text;
  EXPECT_TRUE(parse_json("18446744073709551615"));  // no 64-bit integer of ours: a real
}

TEST(JsonReader, ABodyMayBeMissing) {
  for (const char* body : {"", " \r\n", "null", "{}"}) {
    const auto value = parse_object(body);
    ASSERT_TRUE(value) << body;
    EXPECT_TRUE(value->is_object() && value->members.empty());
  }
  EXPECT_FALSE(parse_object("[]"));
  EXPECT_FALSE(parse_object("\"x\""));
}

}  // namespace
}  // namespace drupe::api
