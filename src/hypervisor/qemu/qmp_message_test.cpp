#include "hypervisor/qemu/qmp_message.h"

#include <gtest/gtest.h>

namespace drupe {
namespace {

TEST(QmpMessage, Greeting) {
  const auto message = parse_qmp(R"({"QMP": {"version": {"qemu": {"major": 7}}, "capabilities": ["oob"]}})");
  ASSERT_TRUE(message);
  EXPECT_EQ(message->kind, QmpMessage::Kind::kGreeting);
  EXPECT_EQ(message->field("QMP.version.qemu.major"), "7");
  EXPECT_EQ(message->field("QMP.capabilities.0"), "oob");
}

TEST(QmpMessage, ReturnWithAndWithoutContent) {
  const auto empty = parse_qmp(R"({"return": {}, "id": "4"})");
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->kind, QmpMessage::Kind::kReturn);
  EXPECT_EQ(empty->id, "4");
  const auto status = parse_qmp(R"({"return": {"status": "paused", "running": false}, "id": "5"})");
  ASSERT_TRUE(status);
  EXPECT_EQ(status->field("return.status"), "paused");
  EXPECT_EQ(status->field("return.running"), "false");
  EXPECT_EQ(status->field("return.nothing"), "");
}

TEST(QmpMessage, ErrorAndEvent) {
  const auto error = parse_qmp(R"({"id": "1", "error": {"class": "GenericError", "desc": "no such node"}})");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind, QmpMessage::Kind::kError);
  EXPECT_EQ(error->error, "no such node");
  const auto event =
      parse_qmp(R"({"event":"SHUTDOWN","data":{"guest":true,"reason":"guest-reset"},"timestamp":{}})");
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, QmpMessage::Kind::kEvent);
  EXPECT_EQ(event->event, "SHUTDOWN");
  EXPECT_EQ(event->field("data.guest"), "true");
}

TEST(QmpMessage, ArraysOfObjectsHaveNumbersInTheirPaths) {
  const auto message = parse_qmp(R"({"return":[{"a":1},{"a":2},[3,[4]]]})");
  ASSERT_TRUE(message);
  EXPECT_EQ(message->field("return.0.a"), "1");
  EXPECT_EQ(message->field("return.1.a"), "2");
  EXPECT_EQ(message->field("return.2.1.0"), "4");
}

TEST(QmpMessage, HostileInputIsRefused) {
  const std::string deep = "{\"return\":" + std::string(5000, '[') + std::string(5000, ']') + "}";
  std::string wide = R"({"return":[0)";
  for (int i = 0; i < 1000; ++i) wide += ",1";
  wide += "]}";
  const std::string long_line = R"({"event":")" + std::string(kMaxQmpLine, 'x') + "\"}";
  for (const std::string& bad :
       {std::string(), std::string("null"), std::string("[]"), std::string("7"), std::string("{"),
        std::string("{}"), std::string("{\"id\":1}"), std::string("{\"return\":{}} x"),
        std::string("\xff\xfe"), deep, wide, long_line})
    EXPECT_FALSE(parse_qmp(bad)) << bad.substr(0, 40);
}

TEST(QmpMessage, AReplyThatIsAlsoAnEventIsNotTakenForTheReplyOfAnother) {
  const auto message = parse_qmp(R"({"error": {"desc": "x"}, "return": {}, "id": "9"})");
  ASSERT_TRUE(message);
  EXPECT_EQ(message->kind, QmpMessage::Kind::kError);
}

TEST(QmpMessage, Commands) {
  EXPECT_EQ(encode_qmp("stop", "", "1"), "{\"execute\":\"stop\",\"id\":\"1\"}\n");
  EXPECT_EQ(encode_qmp("add-fd", R"({"fdset-id":3})", "2"),
            "{\"execute\":\"add-fd\",\"arguments\":{\"fdset-id\":3},\"id\":\"2\"}\n");
}

}  // namespace
}  // namespace drupe
