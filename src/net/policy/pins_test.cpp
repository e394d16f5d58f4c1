#include "net/policy/pins.h"

#include <gtest/gtest.h>

namespace drupe::net {
namespace {

using std::chrono::seconds;
const Time kStart{seconds(1000)};
const IpAddress kOne = IpAddress::v4(0xc0000201);
const IpAddress kTwo = IpAddress::v4(0xc0000202);
using Names = std::vector<std::string>;

void pin(Pins& pins, std::string_view name, const IpAddress& address, seconds ttl, Time now) {
  pins.pin(name, std::span(&address, 1), ttl, now);
}

TEST(Pins, TellNamesOnOneAddressApart) {
  Pins pins;
  pin(pins, "a.example", kOne, seconds(300), kStart);
  pin(pins, "b.example", kOne, seconds(300), kStart);
  pin(pins, "b.example", kTwo, seconds(300), kStart);
  EXPECT_EQ(pins.names_at(kOne, kStart), (Names{"a.example", "b.example"}));
  EXPECT_EQ(pins.names_at(kTwo, kStart), (Names{"b.example"}));
  EXPECT_EQ(pins.names_at(IpAddress::v4(1), kStart), Names{});
}

TEST(Pins, LiveForTheirTtlWithinFloorAndCeiling) {
  const struct {
    seconds ttl, lives;
  } table[] = {{seconds(0), Pins::kFloor}, {seconds(300), seconds(300)}, {seconds(1000000), Pins::kCeiling}};
  for (const auto& line : table) {
    Pins pins;
    pin(pins, "a.example", kOne, line.ttl, kStart);
    EXPECT_EQ(pins.names_at(kOne, kStart + line.lives + Pins::kGrace).size(), 1U);
    EXPECT_TRUE(pins.names_at(kOne, kStart + line.lives + Pins::kGrace + seconds(1)).empty());
    EXPECT_EQ(pins.size(), 0U);
  }
}

TEST(Pins, AnotherAnswerProlongs) {
  Pins pins;
  pin(pins, "a.example", kOne, seconds(300), kStart);
  pin(pins, "a.example", kOne, seconds(60), kStart + seconds(10));
  EXPECT_EQ(pins.size(), 1U);
  EXPECT_EQ(pins.names_at(kOne, kStart + seconds(300)).size(), 1U) << "a shorter answer takes nothing away";
  pin(pins, "a.example", kOne, seconds(300), kStart + seconds(300));
  EXPECT_EQ(pins.names_at(kOne, kStart + seconds(600)).size(), 1U);
}

TEST(Pins, TheLeastRecentlyUsedMakesRoom) {
  Pins pins(3);
  pin(pins, "a.example", kOne, seconds(300), kStart);
  pin(pins, "b.example", kOne, seconds(300), kStart);
  pin(pins, "c.example", kTwo, seconds(300), kStart);
  EXPECT_EQ(pins.names_at(kOne, kStart).size(), 2U);  // c.example is the oldest now
  pin(pins, "d.example", kOne, seconds(300), kStart);
  EXPECT_EQ(pins.size(), 3U);
  EXPECT_TRUE(pins.names_at(kTwo, kStart).empty());
  EXPECT_EQ(pins.names_at(kOne, kStart), (Names{"a.example", "b.example", "d.example"}));
}

TEST(Pins, StayBounded) {
  Pins pins(100);
  for (std::uint32_t i = 0; i < 5000; ++i)
    pin(pins, "name" + std::to_string(i % 700) + ".example", IpAddress::v4(i % 333), seconds(60),
        kStart + seconds(i));
  EXPECT_LE(pins.size(), 100U);
}

}  // namespace
}  // namespace drupe::net
