#include "net/program/peer_message.h"

#include <gtest/gtest.h>

namespace drupe::net {
namespace {

TEST(PeerMessage, EveryKindComesBackWhole) {
  std::vector<PeerMessage> all(9);
  all[0] = {PeerMessageKind::kOpen, 7, false, false, 40000, 80, {}};
  all[1] = {PeerMessageKind::kOpened, 0xffffffff, false, false, 0, 0, {}};
  all[2] = {PeerMessageKind::kRefused, 9, false, true, 0, 0, {}};
  all[3] = {PeerMessageKind::kCancel, 10, false, false, 0, 0, {}};
  all[4] = {PeerMessageKind::kEnd, 11, true, false, 0, 0, {}};
  all[5] = {PeerMessageKind::kDatagram, 0, false, false, 1, 65535, std::string("a\0b", 3)};
  all[6] = {PeerMessageKind::kUnheard, 0, false, false, 53, 40000, {}};
  all[7] = {PeerMessageKind::kEcho, 0, false, false, 0, 0, std::string("\0\1\0\2abc", 7)};
  all[8] = {PeerMessageKind::kEchoReply, 0, false, false, 0, 0, std::string("\0\1\0\2", 4)};
  for (const PeerMessage& message : all) {
    const std::string bytes = message.encode();
    const auto back = PeerMessage::decode(as_bytes(bytes));
    ASSERT_TRUE(back) << static_cast<int>(message.kind);
    EXPECT_EQ(*back, message);
    // A payload may end anywhere, but for an echo's head.
    const bool open_ended = !message.payload.empty();
    const std::size_t least = open_ended ? 5 : bytes.size();
    for (std::size_t size = 0; size < least; ++size)
      EXPECT_FALSE(PeerMessage::decode(as_bytes(std::string_view(bytes).substr(0, size)))) << size;
    EXPECT_EQ(PeerMessage::decode(as_bytes(bytes + "x")).has_value(), open_ended);
  }
}

TEST(PeerMessage, WhatNobodySendsIsRefused) {
  EXPECT_FALSE(PeerMessage::decode({}));
  EXPECT_FALSE(PeerMessage::decode(as_bytes(std::string("\0\0\0\0\0", 5))));
  EXPECT_FALSE(PeerMessage::decode(as_bytes("\x0a")));
  EXPECT_FALSE(PeerMessage::decode(
      as_bytes(PeerMessage{PeerMessageKind::kOpen, 1, false, false, 0, 80, {}}.encode())));
  EXPECT_FALSE(PeerMessage::decode(
      as_bytes(PeerMessage{PeerMessageKind::kOpen, 1, false, false, 80, 0, {}}.encode())));
  PeerMessage giant{PeerMessageKind::kDatagram, 0, false, false, 1, 1, std::string(kMaxPeerMessage, 'x')};
  EXPECT_FALSE(PeerMessage::decode(as_bytes(giant.encode())));
}

}  // namespace
}  // namespace drupe::net
