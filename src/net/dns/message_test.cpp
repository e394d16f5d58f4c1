#include "net/dns/message.h"

#include <gtest/gtest.h>

#include "net/dns/framing.h"

namespace drupe::net::dns {
namespace {

/// Bytes of a literal with NULs in it.
template <std::size_t N>
std::string raw(const char (&text)[N]) {
  return std::string(text, N - 1);
}

const std::string kHead = raw("\x12\x34\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00");
const std::string kQuestion =
    raw("\x01"
        "A\x07"
        "example\x00\x00\x01\x00\x01");

Message sample(std::size_t addresses) {
  Message message;
  message.id = 7;
  message.response = true;
  message.recursion_desired = true;
  message.questions.push_back({*Name::from_text("WWW.Example.com"), kA, kInternet});
  const Name target = *Name::from_text("edge.cdn.example.net");
  message.answers.push_back({message.questions[0].name, kCname, kInternet, 300, target.wire()});
  for (std::size_t i = 0; i < addresses; ++i)
    message.answers.push_back({target, kA, kInternet, 60, std::string(3, 'x') + static_cast<char>(i)});
  return message;
}

TEST(DnsMessage, ReadsWhatItWrites) {
  Message message = sample(60);
  message.edns = Edns{1232, 0, 0};
  const std::string bytes = write_message(message, 65535);
  EXPECT_LT(bytes.size(), 1232U) << "60 addresses fit a datagram when names are compressed";
  const auto back = parse_message(as_bytes(bytes));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->id, 7);
  EXPECT_TRUE(back->response);
  EXPECT_EQ(back->questions[0].name.text(), "WWW.Example.com") << "case is kept";
  ASSERT_EQ(back->answers.size(), 61U);
  EXPECT_EQ(name_in_data(back->answers[0].data)->text(), "edge.cdn.example.net");
  EXPECT_EQ(back->answers[60].name.text(), "edge.cdn.example.net");
  EXPECT_EQ(back->answers[60].ttl, 60U);
  ASSERT_TRUE(back->edns);
  EXPECT_EQ(back->edns->udp_size, 1232);
  EXPECT_EQ(write_message(*back, 65535), bytes);
}

TEST(DnsMessage, WhatDoesNotFitIsTruncated) {
  const std::string bytes = write_message(sample(60), 512);
  EXPECT_LE(bytes.size(), 512U);
  const auto back = parse_message(as_bytes(bytes));
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->truncated);
  EXPECT_TRUE(back->answers.empty());
  EXPECT_FALSE(parse_message(as_bytes(write_message(sample(20), 512)))->truncated);
}

TEST(DnsMessage, NamesCannotPointInCircles) {
  const std::string record_tail =
      raw("\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04"
          "abcd");
  EXPECT_TRUE(parse_message(as_bytes(kHead + kQuestion + raw("\xc0\x0c") + record_tail)));
  const std::size_t here = kHead.size() + kQuestion.size();
  const auto pointer = [](std::size_t at) {
    return std::string{static_cast<char>(0xc0 | at >> 8), static_cast<char>(at & 0xff)};
  };
  const std::string names[] = {
      pointer(here),      // itself
      pointer(here + 2),  // forward
      raw("\x01"
          "a") +
          pointer(here),  // its own beginning
      raw("\x01"
          "a") +
          pointer(here + 2),  // its own middle
      pointer(0),
      pointer(11),      // the header
      pointer(0x3fff),  // beyond the end
      raw("\x41"
          "a\x00"),
      raw("\x80"
          "a\x00"),  // unknown kinds of label
      raw("\x3f"
          "a"),  // cut short
  };
  for (const std::string& name : names)
    EXPECT_FALSE(parse_message(as_bytes(kHead + kQuestion + name + record_tail)));
}

TEST(DnsMessage, LoopsThroughRecordsEnd) {
  // Each record's name points at the one before; the last at the question. Two records that point at each
  // other need a forward pointer.
  std::string bytes = raw("\x12\x34\x81\x80\x00\x01\x00\x64\x00\x00\x00\x00") + kQuestion;
  std::size_t target = 12;
  for (int i = 0; i < 100; ++i) {
    const std::size_t at = bytes.size();
    bytes += std::string{static_cast<char>(0xc0 | target >> 8), static_cast<char>(target & 0xff)};
    bytes +=
        raw("\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04"
            "abcd");
    target = at;
  }
  const auto message = parse_message(as_bytes(bytes));
  ASSERT_TRUE(message);
  EXPECT_EQ(message->answers[99].name.text(), "A.example");
}

TEST(DnsMessage, NamesHaveABound) {
  std::string name;
  while (name.size() < 252)
    name +=
        raw("\x01"
            "a");
  const std::string tail = raw("\x00\x01\x00\x01");
  const std::string head = raw("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00");
  EXPECT_TRUE(parse_message(as_bytes(head + name +
                                     raw("\x01"
                                         "b\x00") +
                                     tail)));
  EXPECT_FALSE(parse_message(as_bytes(head + name +
                                      raw("\x02"
                                          "bb\x00") +
                                      tail)));
}

TEST(DnsMessage, MalformedOnesAreRefused) {
  const std::string good = kHead + kQuestion +
                           raw("\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04"
                               "abcd");
  ASSERT_TRUE(parse_message(as_bytes(good)));
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(parse_message(as_bytes(good).first(size))) << size;
  EXPECT_FALSE(parse_message(as_bytes(good + "x")));
  std::string two = good;
  two[5] = 2;
  EXPECT_FALSE(parse_message(as_bytes(two)));
  std::string many = good;
  many[6] = '\x7f';
  EXPECT_FALSE(parse_message(as_bytes(many)));
  std::string wrong_size = good;
  wrong_size[wrong_size.size() - 5] = 3;
  EXPECT_FALSE(parse_message(as_bytes(wrong_size.substr(0, wrong_size.size() - 1))));
}

TEST(DnsMessage, CompressedNamesInDataAreWrittenOut) {
  const std::string mx =
      kHead + kQuestion + raw("\xc0\x0c\x00\x0f\x00\x01\x00\x00\x00\x3c\x00\x08\x00\x0a\x03mx1\xc0\x0e");
  const auto message = parse_message(as_bytes(mx));
  ASSERT_TRUE(message) << message.error().message;
  EXPECT_EQ(message->answers[0].data, raw("\x00\x0a\x03mx1\x07"
                                          "example\x00"));
}

TEST(DnsMessage, OddNamesAreNeverHostNames) {
  const Name odd(
      raw("\x03"
          "a.b\x01\x00\x00"));
  EXPECT_EQ(odd.text(), "a?b.?");
  EXPECT_EQ(Name().text(), ".");
}

TEST(DnsFraming, CutsTheStreamAnywhere) {
  const std::string stream = tcp_frame("first") + tcp_frame("") + tcp_frame(std::string(300, 's'));
  for (const std::size_t step : {1U, 2U, 3U, 7U, 1000U}) {
    TcpFraming framing;
    std::vector<std::string> messages;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      framing.feed(as_bytes(std::string_view(stream).substr(at, step)));
      while (auto message = framing.next()) messages.push_back(*message);
    }
    EXPECT_EQ(messages, (std::vector<std::string>{"first", "", std::string(300, 's')})) << step;
    EXPECT_EQ(framing.held(), 0U);
  }
}

}  // namespace
}  // namespace drupe::net::dns
