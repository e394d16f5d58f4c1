#include "protocol/frame.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/credit.h"

namespace drupe {
namespace {

struct Seen {
  FrameType type;
  Channel channel;
  std::uint32_t id;
  std::string payload;
  bool operator==(const Seen&) const = default;
};

Status collect(FrameParser& parser, std::string_view bytes, std::vector<Seen>& seen) {
  return parser.feed(as_bytes(bytes), [&](const Frame& frame) -> Status {
    seen.push_back({frame.type, frame.channel, frame.id, std::string(as_text(frame.payload))});
    return {};
  });
}

std::string two_frames() {
  std::string bytes;
  append_frame(bytes, FrameType::kData, Channel::kStdout, 7, "hello");
  append_frame(bytes, FrameType::kEof, Channel::kStderr, 0xfffffffe, "");
  return bytes;
}

const std::vector<Seen> kTwo{{FrameType::kData, Channel::kStdout, 7, "hello"},
                             {FrameType::kEof, Channel::kStderr, 0xfffffffe, ""}};

TEST(FrameParser, FindsFramesHoweverTheBytesAreCut) {
  const std::string bytes = two_frames();
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    FrameParser parser;
    std::vector<Seen> seen;
    ASSERT_TRUE(collect(parser, std::string_view(bytes).substr(0, cut), seen));
    ASSERT_TRUE(collect(parser, std::string_view(bytes).substr(cut), seen));
    EXPECT_EQ(seen, kTwo) << "cut at " << cut;
    EXPECT_TRUE(parser.idle());
  }
}

TEST(FrameParser, TakesSingleBytes) {
  FrameParser parser;
  std::vector<Seen> seen;
  for (const char c : two_frames()) ASSERT_TRUE(collect(parser, {&c, 1}, seen));
  EXPECT_EQ(seen, kTwo);
}

TEST(FrameParser, TakesTheLargestFrame) {
  std::string bytes;
  append_frame(bytes, FrameType::kData, Channel::kStdin, 1, std::string(kMaxPayload, 'x'));
  EXPECT_EQ(bytes.size(), kMaxFrameSize);
  FrameParser parser;
  std::vector<Seen> seen;
  ASSERT_TRUE(collect(parser, bytes, seen));
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].payload.size(), kMaxPayload);
}

TEST(FrameParser, RefusesHostileHeaders) {
  const auto refused = [](std::size_t at, char value) {
    std::string bytes = two_frames();
    bytes[at] = value;
    FrameParser whole;
    FrameParser single;
    std::vector<Seen> seen;
    bool single_failed = false;
    for (const char c : bytes) single_failed = single_failed || !collect(single, {&c, 1}, seen);
    return !collect(whole, bytes, seen) && single_failed;
  };
  EXPECT_TRUE(refused(2, 1)) << "length over the bound";
  EXPECT_TRUE(refused(3, '\x80')) << "length over the bound";
  EXPECT_TRUE(refused(4, 0)) << "type 0";
  EXPECT_TRUE(refused(4, 14)) << "unknown type";
  EXPECT_TRUE(refused(5, 3)) << "unknown channel";
  EXPECT_TRUE(refused(6, 1)) << "reserved";
  EXPECT_TRUE(refused(15, 1)) << "reserved";
}

TEST(FrameParser, RefusesEmptyData) {
  std::string bytes;
  append_frame(bytes, FrameType::kData, Channel::kStdin, 1, "");
  FrameParser parser;
  std::vector<Seen> seen;
  EXPECT_FALSE(collect(parser, bytes, seen));
}

TEST(FrameParser, StopsAtAnErrorOfTheCallback) {
  FrameParser parser;
  int calls = 0;
  const auto fed = parser.feed(as_bytes(two_frames()), [&](const Frame&) -> Status {
    ++calls;
    return fail(ErrorCode::kGuest, "no");
  });
  EXPECT_FALSE(fed);
  EXPECT_EQ(calls, 1);
}

std::string marker_text(std::uint64_t epoch) {
  const Marker marker = make_marker(epoch);
  return std::string(as_text(ByteView(marker)));
}

TEST(MarkerScanner, FindsTheMarkerBehindAnyBytes) {
  const std::string magic = marker_text(5).substr(0, 8);
  // The host knows its epoch, so even a magic in front of the marker does not hide it.
  for (const std::string& before :
       {std::string(), std::string("noise"), magic.substr(0, 7), magic, std::string(100'000, magic[0])}) {
    const std::string bytes = before + marker_text(5) + "rest";
    for (std::size_t cut = before.size(); cut <= bytes.size(); ++cut) {
      MarkerScanner scanner(5);
      ByteView first = as_bytes(std::string_view(bytes).substr(0, cut));
      ByteView second = as_bytes(std::string_view(bytes).substr(cut));
      const bool early = scanner.scan(first);
      ASSERT_TRUE(early || first.empty());
      ASSERT_TRUE(early || scanner.scan(second)) << before.size() << " cut " << cut;
      EXPECT_EQ(std::string(as_text(first)) + std::string(as_text(second)), "rest");
    }
  }
}

TEST(MarkerScanner, PassesOverOtherEpochs) {
  const std::string bytes = marker_text(4) + "x" + marker_text(5) + "tail";
  MarkerScanner scanner(5);
  ByteView view = as_bytes(bytes);
  ASSERT_TRUE(scanner.scan(view));
  EXPECT_EQ(as_text(view), "tail");
  EXPECT_EQ(scanner.epoch(), 5U);
}

TEST(MarkerScanner, EpochZeroIsNone) {
  const std::string bytes = marker_text(0) + "x";
  MarkerScanner scanner;
  ByteView view = as_bytes(bytes);
  EXPECT_FALSE(scanner.scan(view));
  EXPECT_TRUE(view.empty());
}

TEST(SmallFrames, GoThereAndBack) {
  EXPECT_EQ(*decode_credit(as_bytes(encode_credit(77))), 77U);
  const auto signal = decode_signal(as_bytes(encode_signal({9, true})));
  ASSERT_TRUE(signal);
  EXPECT_EQ(signal->signal, 9);
  EXPECT_TRUE(signal->tree);
  const auto size = decode_resize(as_bytes(encode_resize({50, 132})));
  ASSERT_TRUE(size);
  EXPECT_EQ(size->rows, 50);
  EXPECT_EQ(size->columns, 132);
  EXPECT_FALSE(decode_credit(as_bytes("abc")));
  EXPECT_FALSE(decode_credit(as_bytes("abcde")));
  EXPECT_FALSE(decode_signal(as_bytes(encode_signal({65, false}))));
  EXPECT_FALSE(decode_signal(as_bytes(encode_signal({-1, false}))));
  EXPECT_FALSE(decode_resize(as_bytes("")));
}

TEST(Credit, SenderStopsAtTheWindowAndRefusesTooMuch) {
  CreditSender sender;
  EXPECT_EQ(sender.may_send(), kInitialCredit);
  sender.consumed(kInitialCredit);
  EXPECT_EQ(sender.may_send(), 0U);
  ASSERT_TRUE(sender.grant(10));
  EXPECT_EQ(sender.may_send(), 10U);
  EXPECT_FALSE(sender.grant(kMaxCredit));
  EXPECT_FALSE(sender.grant(0xffffffff));
  EXPECT_EQ(sender.may_send(), 10U);
}

TEST(Credit, ReceiverGrantsHalfAWindowAtATime) {
  CreditReceiver receiver;
  ASSERT_TRUE(receiver.received(kInitialCredit));
  EXPECT_FALSE(receiver.received(1));
  EXPECT_EQ(receiver.consumed(kInitialCredit / 2 - 1), 0U);
  EXPECT_EQ(receiver.consumed(1), kInitialCredit / 2);
  ASSERT_TRUE(receiver.received(kInitialCredit / 2));
  EXPECT_FALSE(receiver.received(1));
}

}  // namespace
}  // namespace drupe
