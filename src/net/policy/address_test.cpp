#include "net/policy/address.h"

#include <gtest/gtest.h>

#include "net/policy/embedded.h"
#include "net/policy/name.h"

namespace drupe::net {
namespace {

std::string address(std::string_view text) {
  const auto parsed = IpAddress::parse(text);
  return parsed ? parsed->to_string() : "no";
}

std::string range(std::string_view text) {
  const auto parsed = Cidr::parse(text);
  return parsed ? parsed->to_string() : "no";
}

TEST(Address, HasOneFormWhateverItsSpelling) {
  EXPECT_EQ(address("192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(address("::ffff:192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(address("::ffff:c000:201"), "192.0.2.1");
  EXPECT_EQ(address("0:0:0:0:0:FFFF:c000:0201"), "192.0.2.1");
  EXPECT_EQ(address("2001:DB8:0:0:0:0:0:1"), "2001:db8::1");
  EXPECT_EQ(IpAddress::parse("::ffff:127.0.0.1"), IpAddress::v4(0x7f000001));
}

TEST(Address, RefusesWhatOthersReadDifferently) {
  for (const char* text :
       {"", "1", "1.2.3", "1.2.3.4.5", "01.2.3.4", "0x7f.0.0.1", "2130706433", "127.1", "1.2.3.256",
        " 1.2.3.4", "1.2.3.4 ", "::1%lo", "[::1]", ":::", "1::2::3", "12345::", "::ffff:1.2.3"})
    EXPECT_EQ(address(text), "no") << text;
  EXPECT_EQ(address(std::string_view("1.2.3.4\0x", 9)), "no");
}

TEST(Address, RangesAreOfOneFamily) {
  EXPECT_EQ(range("10.0.0.0/8"), "10.0.0.0/8");
  EXPECT_EQ(range("::ffff:10.0.0.0/104"), "10.0.0.0/8");
  EXPECT_EQ(range("0.0.0.0/0"), "0.0.0.0/0");
  EXPECT_EQ(range("2001:db8::/32"), "2001:db8::/32");
  for (const char* text :
       {"10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/08", "10.0.0.0", "/8", "::1/0",
        "::ffff:0.0.0.0/95", "::ffff:10.0.0.0/129", "2001:db8::/129", "10.0.0.0/8/8", "10.0.0.0/-1"})
    EXPECT_EQ(range(text), "no") << text;
  const Cidr everything6 = *Cidr::parse("::/0");
  EXPECT_TRUE(everything6.contains(*IpAddress::parse("2001:db8::1")));
  EXPECT_FALSE(everything6.contains(*IpAddress::parse("192.0.2.1")));
  const Cidr odd = *Cidr::parse("172.16.0.0/12");
  EXPECT_TRUE(odd.contains(*IpAddress::parse("172.31.255.255")));
  EXPECT_FALSE(odd.contains(*IpAddress::parse("172.32.0.0")));
}

TEST(Address, FindsIPv4InsideIPv6) {
  const std::vector<Cidr> own{*Cidr::parse("2001:db8:1::/48"), *Cidr::parse("2001:db8:2::/96"),
                              *Cidr::parse("2001:db8:3::/64")};
  const struct {
    const char* text;
    std::vector<const char*> found;
  } table[] = {
      {"192.0.2.1", {}},
      {"2001:db8:9::1", {}},
      {"64:ff9b::127.0.0.1", {"127.0.0.1"}},
      {"64:ff9b::a00:1", {"10.0.0.1"}},
      {"2002:7f00:1::", {"127.0.0.1"}},
      {"2002:a9fe:a9fe::1", {"169.254.169.254"}},
      {"::10.0.0.1", {"10.0.0.1"}},
      {"::ffff:0:10.0.0.1", {"10.0.0.1"}},
      {"2001:0:a00:1::f5ff:fffe", {"10.0.0.1", "10.0.0.1"}},
      {"2001:db8:9::5efe:10.0.0.1", {"10.0.0.1"}},
      {"2001:db8:9::200:5efe:10.0.0.1", {"10.0.0.1"}},
      {"2001:db8:1:a00:0:100::", {"10.0.0.1"}},
      {"2001:db8:2::10.0.0.1", {"10.0.0.1"}},
      {"2001:db8:3:0:a:0:100::", {"10.0.0.1"}},
  };
  for (const auto& line : table) {
    const auto found = embedded_v4(*IpAddress::parse(line.text), own);
    ASSERT_EQ(found.size(), line.found.size()) << line.text;
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(found[i].to_string(), line.found[i]) << line.text;
  }
}

TEST(HostName, HasOneForm) {
  EXPECT_EQ(normal_name("Example.COM."), "example.com");
  EXPECT_EQ(normal_name("_http._tcp.deb.example"), "_http._tcp.deb.example");
  EXPECT_EQ(normal_name("xn--bcher-kva.example"), "xn--bcher-kva.example");
  EXPECT_EQ(normal_name("db"), "db");
  EXPECT_TRUE(normal_name(std::string(63, 'a') + ".example"));
  for (const std::string text : {"", ".", "..", "a..b", ".a", "a b",
                                 "b\xc3\xbc"
                                 "cher.example",
                                 "1.2.3.4", "a.123", "123", "a/b", "a:1", "a.b..", "*.a"})
    EXPECT_FALSE(normal_name(text)) << text;
  EXPECT_FALSE(normal_name(std::string(64, 'a') + ".example"));
  EXPECT_FALSE(normal_name(std::string("a\0b.example", 11)));
  std::string longest;
  while (longest.size() < 252) longest += "a.";
  EXPECT_TRUE(normal_name(longest + "b"));
  EXPECT_FALSE(normal_name(longest + "bc"));
}

TEST(HostName, DomainsEndAtDots) {
  EXPECT_TRUE(is_in_domain("a.example.com", "example.com"));
  EXPECT_TRUE(is_in_domain("example.com", "example.com"));
  EXPECT_FALSE(is_in_domain("badexample.com", "example.com"));
  EXPECT_FALSE(is_in_domain("com", "example.com"));
}

}  // namespace
}  // namespace drupe::net
