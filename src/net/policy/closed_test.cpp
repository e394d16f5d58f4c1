#include "net/policy/closed.h"

#include <gtest/gtest.h>

namespace drupe::net {
namespace {

IpAddress at(std::string_view text) {
  return IpAddress::parse(text).value_or(IpAddress());
}

std::string why(const ClosedRanges& ranges, std::string_view text) {
  return ranges.why_closed(at(text)).value_or("open");
}

ClosedRanges opened(std::vector<std::string> openings, std::vector<IpAddress> own = {}) {
  const auto ranges = ClosedRanges::create({std::move(own), {}, true}, openings);
  EXPECT_TRUE(ranges) << ranges.error().message;
  return ranges ? *ranges : ClosedRanges();
}

/// Last address of a range.
IpAddress last_of(const Cidr& range) {
  auto raw = range.base.bytes();
  const unsigned prefix = range.bits + (range.base.is_v4() ? 96U : 0U);
  for (unsigned bit = prefix; bit < 128; ++bit)
    raw[bit / 8] = static_cast<std::uint8_t>(raw[bit / 8] | 0x80U >> bit % 8);
  return *IpAddress::from_bytes(raw);
}

std::vector<IpAddress> spellings(const IpAddress& v4) {
  std::vector<IpAddress> out;
  const auto put = [&](std::string_view prefix, std::size_t offset, bool inverted = false) {
    auto raw = at(prefix).bytes();
    for (std::size_t i = 0; i < 4; ++i)
      raw[offset + i] = static_cast<std::uint8_t>(inverted ? ~v4.wire()[i] : v4.wire()[i]);
    out.push_back(*IpAddress::from_bytes(raw));
  };
  put("::ffff:0:0", 12);
  put("64:ff9b::", 12);
  put("2002::1", 2);
  put("2001:0:808:808::", 12, true);
  put("2001::", 4);
  put("::ffff:0:0:0", 12);
  put("2001:db8::5efe:0:0", 12);
  put("2001:db8:64::", 12);
  return out;
}

TEST(Closed, EveryRangeInEverySpelling) {
  const std::vector<std::string> none;
  const auto ranges = ClosedRanges::create({{}, {*Cidr::parse("2001:db8:64::/96")}, true}, none);
  ASSERT_TRUE(ranges);
  for (const ClosedRange& closed : closed_ranges()) {
    for (const IpAddress& edge : {closed.range.base, last_of(closed.range)}) {
      EXPECT_TRUE(ranges->why_closed(edge)) << closed.name << " " << edge.to_string();
      if (!edge.is_v4()) continue;
      for (const IpAddress& spelled : spellings(edge))
        EXPECT_TRUE(ranges->why_closed(spelled)) << closed.name << " as " << spelled.to_string();
    }
  }
}

TEST(Closed, SaysWhy) {
  const ClosedRanges ranges;
  EXPECT_EQ(why(ranges, "169.254.169.254"), "closed: metadata 169.254.169.254");
  EXPECT_EQ(why(ranges, "169.254.1.1"), "closed: link-local 169.254.0.0/16");
  EXPECT_EQ(why(ranges, "fd00:ec2::254"), "closed: metadata fd00:ec2::254");
  EXPECT_EQ(why(ranges, "64:ff9b::10.0.0.1"), "closed: private 10.0.0.0/8 as 10.0.0.1 inside IPv6");
  EXPECT_EQ(why(ranges, "168.63.129.16"), "closed: metadata 168.63.129.16");
  EXPECT_EQ(why(ranges, "0.0.0.0"), "closed: this network 0.0.0.0/8");
  EXPECT_EQ(why(ranges, "::"), "closed: unspecified ::");
}

TEST(Closed, PublicAndDocumentationAddressesAreOpen) {
  const ClosedRanges ranges;
  for (const char* text :
       {"1.1.1.1",      "8.8.8.8",         "9.255.255.255",    "11.0.0.0",        "100.63.255.255",
        "100.128.0.0",  "128.0.0.1",       "172.15.255.255",   "172.32.0.0",      "192.0.2.1",
        "198.51.100.1", "203.0.113.1",     "192.167.255.255",  "192.169.0.0",     "223.255.255.255",
        "2001:db8::1",  "2606:4700::1111", "64:ff9b::8.8.8.8", "2002:808:808::1", "fbff::1"})
    EXPECT_EQ(why(ranges, text), "open") << text;
}

TEST(Closed, TheHostsOwnAddressesInEverySpelling) {
  const auto ranges = opened({}, {at("203.0.113.5"), at("2001:db8::5"), at("127.0.0.1")});
  EXPECT_EQ(why(ranges, "203.0.113.5"), "closed: the host's own address");
  EXPECT_EQ(why(ranges, "::ffff:203.0.113.5"), "closed: the host's own address");
  EXPECT_EQ(why(ranges, "64:ff9b::203.0.113.5"), "closed: the host's own address as 203.0.113.5 inside IPv6");
  EXPECT_EQ(why(ranges, "2001:db8::5"), "closed: the host's own address");
  EXPECT_EQ(why(ranges, "203.0.113.6"), "open");
}

TEST(Closed, OpensWhatIsNamed) {
  const auto lan = opened({"192.168.1.0/24"}, {at("192.168.1.10")});
  EXPECT_EQ(why(lan, "192.168.1.7"), "open");
  EXPECT_EQ(why(lan, "64:ff9b::192.168.1.7"), "open");
  EXPECT_EQ(why(lan, "192.168.2.7"), "closed: private 192.168.0.0/16");
  EXPECT_EQ(why(lan, "192.168.1.10"), "closed: the host's own address")
      << "a range does not mean the host itself";
  EXPECT_EQ(why(opened({"192.168.1.10"}, {at("192.168.1.10")}), "192.168.1.10"), "open");

  const auto link = opened({"169.254.0.0/16", "fe80::/10"});
  EXPECT_EQ(why(link, "169.254.1.1"), "open");
  EXPECT_EQ(why(link, "fe80::1"), "open");
  EXPECT_EQ(why(link, "169.254.169.254"), "closed: metadata 169.254.169.254") << "only when named alone";
  EXPECT_EQ(why(opened({"169.254.169.254/32"}), "169.254.169.254"), "open");
  EXPECT_EQ(why(opened({"127.0.0.0/8"}, {at("127.0.0.1")}), "127.0.0.1"), "open");
  EXPECT_EQ(why(opened({"::1"}), "::1"), "open");
  EXPECT_EQ(why(opened({"100.64.0.0/10"}), "100.100.100.200"), "closed: metadata 100.100.100.200");
}

TEST(Closed, RefusesToOpenTooMuch) {
  for (const std::string text :
       {"0.0.0.0/0", "::/0", "192.0.0.0/8", "224.0.0.1", "255.255.255.255", "0.0.0.0", "::", "240.0.0.0/4",
        "ff02::1", "f000::/4", "10.0.0.1/8", "lan", "", "10.0.0.0/8:80"}) {
    const std::vector<std::string> openings{text};
    const auto ranges = ClosedRanges::create({}, openings);
    EXPECT_FALSE(ranges) << text;
    if (!ranges) {
      EXPECT_EQ(ranges.error().code, ErrorCode::kInvalidArgument) << text;
    }
  }
  EXPECT_FALSE(
      ClosedRanges::create({}, std::vector<std::string>(ClosedRanges::kMaxOpenings + 1, "10.0.0.0/8")));
  EXPECT_TRUE(ClosedRanges::create({}, std::vector<std::string>{"203.0.113.0/24"})) << "open anyway: no harm";
}

}  // namespace
}  // namespace drupe::net
