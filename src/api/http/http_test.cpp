// Requests as bytes: heads, bodies in any pieces, targets.
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/http/parser.h"
#include "api/http/url.h"

namespace drupe::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Result<RequestHead> parse(std::string_view text) {
  RequestParser parser;
  EXPECT_EQ(head_length(text), text.size());
  return parser.head(text);
}

TEST(HttpHead, SaysMethodTargetAndHeaders) {
  const auto head =
      parse("PUT /v1/x?a=b HTTP/1.1\r\nHost: h\r\nX-API-Key:  skp_1 \r\nContent-Length: 7\r\n\r\n");
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(head->method, "PUT");
  EXPECT_EQ(head->target, "/v1/x?a=b");
  EXPECT_EQ(head->header("x-api-key"), "skp_1");
  EXPECT_EQ(head->content_length, 7U);
  EXPECT_TRUE(head->keep_alive);
  EXPECT_TRUE(head->has_body());
  EXPECT_FALSE(parse("POST / HTTP/1.1\r\nHost: h\r\n\r\n")->has_body());
  EXPECT_FALSE(parse("GET / HTTP/1.1\r\nConnection: close\r\n\r\n")->keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.0\r\n\r\n")->keep_alive);
}

TEST(HttpHead, WordsOfAListAreFoundInAnyCase) {
  const auto head = parse("GET / HTTP/1.1\r\nConnection: Upgrade , HTTP2-Settings\r\nUpgrade: H2C\r\n\r\n");
  ASSERT_TRUE(head);
  EXPECT_TRUE(head->header_has("connection", "upgrade"));
  EXPECT_TRUE(head->header_has("upgrade", "h2c"));
  EXPECT_FALSE(head->header_has("connection", "close"));
}

TEST(HttpHead, RefusesWhatIsAmbiguousOrNoHttp) {
  for (const std::string_view text : {
           "GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
           "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
           "GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
           "GET / HTTP/1.1\nHost: x\n\n",
           "GET / HTTP/2.0\r\n\r\n",
           "GET /\r\n\r\n",
           "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
           "GET / HTTP/1.1\r\nX: a\x01\r\n\r\n",
           "PRI * HTTP/2.0\r\n\r\n",
       })
    EXPECT_FALSE(parse(text)) << text;
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 101; ++i) many += "X: y\r\n";
  EXPECT_FALSE(parse(many + "\r\n"));
}

TEST(HttpHead, EndsAtItsBlankLine) {
  EXPECT_EQ(head_length("GET / HTTP/1.1\r\nA: b\r\n"), 0U);
  EXPECT_EQ(head_length("GET / HTTP/1.1\r\n\r\nrest"), 18U);
  EXPECT_EQ(head_length("\r\nGET / HTTP/1.1\r\n\r\nrest"), 20U);
  EXPECT_EQ(head_length("\r\n\r\n"), 0U);
}

/// What comes out of a body that is given in pieces of random size, and read through windows of random size.
std::string read_in_pieces(std::string_view head, std::string_view body, unsigned seed) {
  std::mt19937 random(seed);
  RequestParser parser;
  EXPECT_TRUE(parser.head(head));
  std::string out;
  std::string kept;
  bool done = false;
  while (!done) {
    std::vector<char> window(1 + random() % (seed % 2 == 0 ? 70'000 : 900));
    const auto step = parser.body(kept, window);
    if (!step) return "error: " + step.error().message;
    out.append(window.data(), step->produced);
    kept.erase(0, step->consumed);
    done = step->done;
    if (done || step->produced != 0) continue;
    if (body.empty()) return "it does not end";
    const std::size_t piece =
        std::min<std::size_t>(body.size(), 1 + random() % (seed % 3 == 0 ? 100 : 70'000));
    kept.append(body.substr(0, piece));
    body.remove_prefix(piece);
  }
  return out;
}

TEST(HttpBody, ComesWholeInWhateverPieces) {
  std::string content;
  std::string chunks;
  for (std::size_t i = 0; i < 25; ++i) {
    const std::string part(i * i * 17 + 1, static_cast<char>('a' + i % 26));
    char size[32];
    std::snprintf(size, sizeof size, "%zx\r\n", part.size());
    chunks += size + part + "\r\n";
    content += part;
  }
  chunks += "0\r\n\r\n";
  for (unsigned seed = 0; seed < 24; ++seed) {
    EXPECT_EQ(read_in_pieces("PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", chunks, seed), content)
        << seed;
    EXPECT_EQ(
        read_in_pieces("PUT / HTTP/1.1\r\nContent-Length: " + std::to_string(content.size()) + "\r\n\r\n",
                       content, seed),
        content)
        << seed;
  }
}

TEST(HttpBody, RefusesMalformedChunks) {
  for (const std::string_view chunks :
       {"zz\r\n", "5\r\nhello!\r\n0\r\n\r\n", "-1\r\n", "ffffffffffffffffff\r\n"})
    EXPECT_THAT(read_in_pieces("PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", chunks, 1),
                HasSubstr("error"))
        << chunks;
}

TEST(Target, IsSplitBeforeItIsDecoded) {
  RequestHead head;
  head.target = "/v1/sb%2D1/a%2Fb//?path=%2Fa+b%2B&x&=y&path=second#fragment";
  ASSERT_TRUE(split_target(head));
  EXPECT_THAT(head.segments, ElementsAre("v1", "sb-1", "a/b", "", ""));
  EXPECT_THAT(head.query,
              ElementsAre(Pair("path", "/a b+"), Pair("x", ""), Pair("", "y"), Pair("path", "second")));
  EXPECT_EQ(head.parameter("path"), "/a b+");
  for (const char* target : {"*", "http://example.com/", "/%", "/%4", "/%zz", "/?a=%"}) {
    RequestHead bad;
    bad.target = target;
    EXPECT_FALSE(split_target(bad)) << target;
  }
}

}  // namespace
}  // namespace drupe::api
