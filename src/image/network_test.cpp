// The parts of the registry client that decide where bytes and credentials go.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "image/address.h"
#include "image/auth.h"
#include "image/http.h"

namespace drupe {
namespace {

bool is_public(const std::string& text) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  if (::inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1)
    return is_public_address(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4));
  EXPECT_EQ(::inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr), 1) << text;
  return is_public_address(reinterpret_cast<const sockaddr*>(&v6), sizeof(v6));
}

TEST(Address, KnowsWhatIsPublic) {
  for (const char* text : {"8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "192.0.2.1", "203.0.113.5",
                           "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::808:808"})
    EXPECT_TRUE(is_public(text)) << text;
  for (const char* text : {"0.0.0.0",
                           "10.1.2.3",
                           "100.64.0.1",
                           "127.0.0.1",
                           "127.255.255.255",
                           "169.254.169.254",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.168.1.1",
                           "192.0.0.1",
                           "198.18.0.1",
                           "224.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "::ffff:127.0.0.1",
                           "::ffff:169.254.169.254",
                           "::7f00:1",
                           "64:ff9b::7f00:1",
                           "2002:7f00:1::",
                           "fc00::1",
                           "fd00:ec2::254",
                           "fe80::1",
                           "fec0::1",
                           "ff02::1"})
    EXPECT_FALSE(is_public(text)) << text;
}

TEST(Address, Literals) {
  EXPECT_TRUE(is_private_literal("127.0.0.1"));
  EXPECT_TRUE(is_private_literal("[::1]"));
  EXPECT_TRUE(is_private_literal("[nonsense]"));
  EXPECT_FALSE(is_private_literal("8.8.8.8"));
  EXPECT_FALSE(is_private_literal("example.com"));
}

TEST(ParseUrl, TellsWhereARequestGoes) {
  const auto url = parse_url("HTTPS://Example.com/path?x=http://other");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->scheme, "https");
  EXPECT_EQ(url->authority(), "example.com:443");
  EXPECT_EQ(parse_url("http://[::1]:5000?x")->authority(), "[::1]:5000");
  EXPECT_EQ(parse_url("http://a:80")->authority(), parse_url("http://a/")->authority());
  for (const char* text : {"", "example.com", "ftp://a/", "file:///etc/passwd", "http://", "http:///x",
                           "http://user@a/", "http://a:b/", "http://a:/", "http://a b/", "http://a\\@b/",
                           "http://a\r\nHost: b/", "http://[::1/", "http://a%2f/", "javascript:x"})
    EXPECT_FALSE(parse_url(text)) << text;
}

TEST(ResolveUrl, FollowsLocations) {
  const std::string base = "https://a:1/x/y?q=1";
  EXPECT_EQ(resolve_url(base, "http://b/z"), "http://b/z");
  EXPECT_EQ(resolve_url(base, "//b/z"), "https://b/z");
  EXPECT_EQ(resolve_url(base, "/z"), "https://a:1/z");
  EXPECT_EQ(resolve_url(base, "z"), "https://a:1/x/z");
  EXPECT_EQ(resolve_url(base, "?r=2"), "https://a:1/x/y?r=2");
  EXPECT_EQ(resolve_url("https://a", "z"), "https://a/z");
}

TEST(Challenges, AreRead) {
  const auto list = parse_challenges(
      R"(Basic realm="a, b", Bearer realm="https://auth.example/token",service="s" , Scope="repository:x:pull,push", esc="\"q\"")");
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].scheme, "basic");
  EXPECT_EQ(list[0].params.at("realm"), "a, b");
  EXPECT_EQ(list[1].scheme, "bearer");
  EXPECT_EQ(list[1].params.at("realm"), "https://auth.example/token");
  EXPECT_EQ(list[1].params.at("scope"), "repository:x:pull,push");
  EXPECT_EQ(list[1].params.at("esc"), "\"q\"");
  EXPECT_TRUE(parse_challenges("").empty());
  EXPECT_TRUE(parse_challenges("=x").empty());
  EXPECT_EQ(parse_challenges("Bearer realm=https://a/b").at(0).params.at("realm"), "https://a/b");
  EXPECT_EQ(parse_challenges("Bearer realm=\"open").at(0).params.at("realm"), "open");
}

TEST(Credentials, ComeFromDockersFile) {
  const auto login = credentials_from(R"({"auths":{"host.example:5000":{"auth":"dXNlcjpwYXNzOndvcmQ="}}})",
                                      "host.example:5000");
  ASSERT_TRUE(login && *login);
  EXPECT_EQ((*login)->username, "user");
  EXPECT_EQ((*login)->password, "pass:word");
  EXPECT_EQ((*credentials_from(R"({"auths":{"https://index.docker.io/v1/":{"username":"u","password":"p"}}})",
                               "docker.io"))
                ->username,
            "u");
  EXPECT_EQ((*credentials_from(R"({"auths":{"x":{"identitytoken":"t"}}})", "x"))->identity_token, "t");
  EXPECT_FALSE(*credentials_from(R"({"auths":{"other":{"auth":"dTpw"}}})", "host"));
  EXPECT_FALSE(*credentials_from("{}", "host"));
  EXPECT_EQ((*credentials_from(R"({"auths":{"x":{}},"credsStore":"keys"})", "x"))->helper,
            "docker-credential-keys");
  EXPECT_EQ((*credentials_from(R"({"credHelpers":{"x":"keys"}})", "x"))->helper, "docker-credential-keys");
  EXPECT_FALSE(credentials_from("[]", "x"));
  EXPECT_FALSE(credentials_from(R"({"auths":{"x":{"auth":"?"}}})", "x"));
  EXPECT_TRUE(credentials_from(R"({"auths":7,"credHelpers":7,"credsStore":7})", "x"));
}

TEST(Base64, RoundTrips) {
  for (const std::string text : {"", "f", "fo", "foo", "foob", "fooba", "foobar"})
    EXPECT_EQ(base64_decode(base64_encode(text)), text);
  EXPECT_EQ(base64_encode("foob"), "Zm9vYg==");
  EXPECT_EQ(base64_encode(std::string("\xff\x00\xfe", 3)), "/wD+");
  EXPECT_FALSE(base64_decode("a b"));
}

}  // namespace
}  // namespace drupe
