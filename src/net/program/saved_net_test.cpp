#include "net/program/saved_net.h"

#include <gtest/gtest.h>

namespace drupe::net {
namespace {

const IpAddress kFour = *IpAddress::parse("192.0.2.1");
const IpAddress kSix = *IpAddress::parse("2001:db8::1");

SavedNet some() {
  SavedNet saved;
  FlowRecord flow;
  flow.key = {PacketAddress::v4(10, 0, 0, 2), PacketAddress::v4(192, 0, 2, 1), 40000, 443};
  saved.flows = {flow};
  saved.pins = {{"good.example", kFour, std::chrono::seconds(30)},
                {"six.example", kSix, std::chrono::seconds(0)}};
  return saved;
}

TEST(SavedNet, ComesBack) {
  const auto back = decode_saved_net(as_bytes(encode_saved_net(some())));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->flows, some().flows);
  EXPECT_EQ(back->pins, some().pins);
}

TEST(SavedNet, RefusesWhatItDidNotWrite) {
  const std::string good = encode_saved_net(some());
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(decode_saved_net(as_bytes(good.substr(0, size)))) << size;
  EXPECT_FALSE(decode_saved_net(as_bytes(good + "x")));
  SavedNet name = some();
  name.pins[0].name = "Good.example";
  EXPECT_FALSE(decode_saved_net(as_bytes(encode_saved_net(name))));
  SavedNet life = some();
  life.pins[0].left = Pins::kLongest + std::chrono::seconds(1);
  EXPECT_FALSE(decode_saved_net(as_bytes(encode_saved_net(life))));
}

TEST(SavedNet, PinsGoOnWithTheLifeThatIsLeft) {
  const Time begun{};
  Pins first;
  const std::vector<IpAddress> addresses{kFour};
  first.pin("good.example", addresses, std::chrono::seconds(100), begun);
  const auto saved = first.saved(begun + std::chrono::seconds(40));
  ASSERT_EQ(saved.size(), 1U);
  // Of 100 seconds and the grace of 5.
  EXPECT_EQ(saved[0].left, std::chrono::seconds(65));
  Pins second;
  const Time later = begun + std::chrono::hours(24);
  second.restore(saved, later);
  EXPECT_EQ(second.names_at(kFour, later + std::chrono::seconds(65)),
            std::vector<std::string>{"good.example"});
  EXPECT_TRUE(second.names_at(kFour, later + std::chrono::seconds(66)).empty());
  EXPECT_TRUE(first.saved(begun + std::chrono::seconds(200)).empty());
}

}  // namespace
}  // namespace drupe::net
