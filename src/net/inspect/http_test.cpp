#include <gtest/gtest.h>

#include "net/inspect/name_inspector.h"

namespace drupe::net {
namespace {

using Verdict = Inspection::Verdict;

bool is_good(std::string_view name) {
  return name == "good.example" || name == "also.example";
}

NameInspector inspector(NameCheck check = NameCheck::kRequired) {
  return {check, is_good, {}};
}

Inspection feed(NameInspector& reader, std::string_view bytes, std::size_t step) {
  Inspection last;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    const std::string_view part = bytes.substr(at, step);
    const Inspection now = reader.on_client(as_bytes(part));
    EXPECT_GE(now.release, last.release);
    EXPECT_LE(now.release, at + part.size());
    last = now;
    if (last.verdict == Verdict::kRefuse) break;
  }
  return last;
}

const std::string kGet = "GET / HTTP/1.1\r\nHost: good.example\r\n\r\n";
const std::string kEvil = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";

TEST(HttpName, RequestsThatPass) {
  const std::string table[] = {
      kGet,
      kGet + kGet + kGet,
      "GET / HTTP/1.0\r\nhOsT:good.example:80\r\n\r\n",
      "GET http://good.example/x?y HTTP/1.1\r\nHost: good.example\r\n\r\n",
      "GET http://GOOD.example:80 HTTP/1.1\r\nHost: good.example\r\n\r\n",
      "OPTIONS * HTTP/1.1\r\nHost: good.example\r\n\r\n",
      "GET /caf\xc3\xa9 HTTP/1.1\r\nHost: good.example\r\nX:\ta\tb\x80\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5\r\n\r\nhello" + kGet,
      "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 0\r\n\r\n" + kGet,
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: "
      "Chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n" +
          kGet,
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nDigest: x\r\n\r\n" +
          kGet,
      "GET / HTTP/1.1\r\nHost: good.example\r\n\r\nGET / HTTP/1.1\r\nHost: also.example\r\n\r\n",
  };
  for (const std::string& bytes : table) {
    for (const std::size_t step : {1U, 2U, 7U, 100000U}) {
      NameInspector reader = inspector();
      const Inspection result = feed(reader, bytes, step);
      EXPECT_EQ(result.verdict, Verdict::kPass) << result.reason << "\n" << bytes;
      EXPECT_EQ(result.release, bytes.size()) << bytes;
    }
  }
}

TEST(HttpName, TheHeadIsHeldUntilItIsJudgedAndTheBodyFlows) {
  NameInspector reader = inspector();
  const std::string head = "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 10\r\n\r\n";
  for (std::size_t i = 0; i + 1 < head.size(); ++i)
    ASSERT_EQ(reader.on_client(as_bytes(std::string_view(head).substr(i, 1))).release, 0U);
  EXPECT_EQ(reader.on_client(as_bytes("\n")).release, head.size());
  EXPECT_EQ(reader.on_client(as_bytes("01234")).release, head.size() + 5);
  const Inspection next = reader.on_client(as_bytes("56789GET /"));
  EXPECT_EQ(next.release, head.size() + 10);
  EXPECT_EQ(next.verdict, Verdict::kNeedMore);
}

TEST(HttpName, EveryRequestOfAConnectionIsJudged) {
  const std::string bodies[] = {
      kGet,
      "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5\r\n\r\nhello",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
  };
  for (const std::string& first : bodies) {
    for (const std::size_t step : {1U, 3U, 100000U}) {
      NameInspector reader = inspector();
      const Inspection result = feed(reader, first + kGet + kEvil, step);
      EXPECT_EQ(result.verdict, Verdict::kRefuse);
      EXPECT_NE(result.reason.find("'evil.example' is not allowed"), std::string::npos) << result.reason;
      EXPECT_EQ(result.release, first.size() + kGet.size()) << "nothing of the last request goes on";
    }
  }
}

TEST(HttpName, RequestsThatTwoServersReadDifferently) {
  const std::string table[] = {
      // Framing: request smuggling.
      "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5, 5\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: +5\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 0x5\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: \r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 9999999999999999999\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
      "chunked\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: xchunked\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding : chunked\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: \x0b"
      "chunked\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding:\r\n chunked\r\n\r\n",
      "POST / HTTP/1.0\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n5;\nx\r\nhello\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: "
      "evil.example\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno colon\r\n\r\n",
      // Line ends and blanks.
      "GET / HTTP/1.1\nHost: good.example\n\n",
      "GET / HTTP/1.1\r\nHost: good.example\n\r\n",
      "GET / HTTP/1.1\r\nX: a\rHost: evil.example\r\nHost: good.example\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: good.example\r\n evil: x\r\n\r\n",
      "GET / HTTP/1.1\r\n Host: evil.example\r\nHost: good.example\r\n\r\n",
      "GET / HTTP/1.1\r\nHost : good.example\r\n\r\n",
      "GET / HTTP/1.1\r\nX\r\nHost: good.example\r\n\r\n",
      "GET / HTTP/1.1\r\n: x\r\nHost: good.example\r\n\r\n",
      std::string("GET / HTTP/1.1\r\nX: a\0b\r\nHost: good.example\r\n\r\n", 46),
      "\r\n" + kGet,
      " " + kGet,
      "GET  / HTTP/1.1\r\nHost: good.example\r\n\r\n",
      "GET\t/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
      "GET / HTTP/1.1 \r\nHost: good.example\r\n\r\n",
      "GET /a b HTTP/1.1\r\nHost: good.example\r\n\r\n",
      "GET /\r\nHost: good.example\r\n\r\n",
      "GET / HTTP/1.2\r\nHost: good.example\r\n\r\n",
      "GET / http/1.1\r\nHost: good.example\r\n\r\n",
      // Names.
      "GET / HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.0\r\n\r\n",
      "GET / HTTP/1.1\r\nHost:\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: good.example\r\nHost: good.example\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: good.example\r\nHOST: evil.example\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: good.example, evil.example\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: evil.example@good.example\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: good.example:80:80\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: good.example:x\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: good.example/\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: good.example evil.example\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: [2001:db8::1]\r\n\r\n",
      "GET http://evil.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
      "GET http://good.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
      "GET http://good.example@evil.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
      "GET http://evil.example#@good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
      "GET http:///x HTTP/1.1\r\nHost: good.example\r\n\r\n",
      "GET good.example HTTP/1.1\r\nHost: good.example\r\n\r\n",
      "GET * HTTP/1.1\r\nHost: good.example\r\n\r\n",
      "GET ftp://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
      "CONNECT good.example:443 HTTP/1.1\r\nHost: good.example\r\n\r\n",
      "CONNECT evil.example:443 HTTP/1.1\r\nHost: good.example\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      // What is not HTTP at all.
      "SSH-2.0-OpenSSH_9.2\r\n",
      "HELO good.example\r\n",
      std::string("\x00\x01\x02", 3),
      "*1\r\n$4\r\nPING\r\n",
  };
  for (const std::string& bytes : table) {
    for (const std::size_t step : {1U, 5U, 100000U}) {
      NameInspector reader = inspector();
      EXPECT_EQ(feed(reader, bytes, step).verdict, Verdict::kRefuse) << bytes;
    }
  }
}

TEST(HttpName, HeadsHaveBounds) {
  NameInspector lines = inspector();
  std::string many = "GET / HTTP/1.1\r\nHost: good.example\r\n";
  for (int i = 0; i < 300; ++i) many += "a: b\r\n";
  EXPECT_EQ(feed(lines, many + "\r\n", 1000).verdict, Verdict::kRefuse);
  NameInspector line = inspector();
  const std::string huge = "GET /" + std::string(kMaxHeld, 'x');
  const Inspection result = feed(line, huge, 1000);
  EXPECT_EQ(result.verdict, Verdict::kRefuse);
  EXPECT_NE(result.reason.find("too long"), std::string::npos);
  NameInspector endless = inspector();
  EXPECT_EQ(feed(endless, std::string(kMaxHeld + 10, 'x'), 1).verdict, Verdict::kRefuse);
}

TEST(HttpName, WebSocketIsOpaqueAfterTheServerAgreed) {
  const std::string upgrade =
      "GET /ws HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
  const std::string frames = std::string("\x81\x05hello\0", 8) + kEvil;
  NameInspector reader = inspector();
  EXPECT_EQ(feed(reader, upgrade, 3).release, upgrade.size());
  EXPECT_TRUE(reader.wants_server());
  Inspection held = reader.on_client(as_bytes(frames));
  EXPECT_EQ(held.verdict, Verdict::kNeedMore);
  EXPECT_EQ(held.release, upgrade.size()) << "held until the server has answered";
  static_cast<void>(reader.on_server(as_bytes("HTTP/1.1 103 Early\r\nX: y\r\n\r\nHTTP/1.1 101 Switch")));
  EXPECT_TRUE(reader.wants_server());
  held = reader.on_server(as_bytes("ing\r\nUpgrade: websocket\r\n\r\nframes"));
  EXPECT_EQ(held.verdict, Verdict::kPass);
  EXPECT_EQ(held.release, upgrade.size() + frames.size());
  EXPECT_TRUE(reader.opaque());
}

TEST(HttpName, ARefusedUpgradeChangesNothing) {
  const std::string upgrade =
      "GET /ws HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
  for (const char* answer :
       {"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 404 No\r\nX: y\r\n\r\nbody", "HTTP/1.0 101 Old\r\n\r\n"}) {
    NameInspector reader = inspector();
    static_cast<void>(feed(reader, upgrade + kGet + kEvil, 100000));
    const Inspection result = reader.on_server(as_bytes(answer));
    EXPECT_EQ(result.verdict, Verdict::kRefuse) << answer;
    EXPECT_EQ(result.release, upgrade.size() + kGet.size());
  }
}

TEST(HttpName, OtherUpgradesNeverBecomeOpaque) {
  for (const char* protocol : {"h2c", "websocket, h2c", "TLS/1.0", "tcp"}) {
    const std::string upgrade = "GET / HTTP/1.1\r\nHost: good.example\r\nUpgrade: " + std::string(protocol) +
                                "\r\nConnection: Upgrade\r\n\r\n";
    NameInspector agreed = inspector();
    EXPECT_EQ(feed(agreed, upgrade, 100000).verdict, Verdict::kPass) << "offering it is harmless";
    EXPECT_EQ(agreed.on_server(as_bytes("HTTP/1.1 101 Yes\r\n\r\n")).verdict, Verdict::kRefuse) << protocol;
    NameInspector ignored = inspector();
    static_cast<void>(feed(ignored, upgrade + kGet, 100000));
    EXPECT_EQ(ignored.on_server(as_bytes("HTTP/1.1 200 OK\r\n\r\n")).verdict, Verdict::kPass) << protocol;
  }
  // Not the first request: the server's answer is not followed, so the bytes are read as requests.
  NameInspector later = inspector();
  const std::string second = kGet + "GET / HTTP/1.1\r\nHost: good.example\r\nUpgrade: websocket\r\n\r\n";
  EXPECT_EQ(feed(later, second, 100000).verdict, Verdict::kPass);
  EXPECT_FALSE(later.wants_server());
  EXPECT_EQ(later.on_client(as_bytes("\x81\x05hello")).verdict, Verdict::kNeedMore);
  EXPECT_EQ(later.on_client(as_bytes(kEvil)).verdict, Verdict::kRefuse);
}

TEST(HttpName, OtherProtocolsPassWhereTheyMay) {
  const std::string passing[] = {"SSH-2.0-OpenSSH_9.2\r\nmore",
                                 "HELO good.example\r\n",
                                 std::string("\x00\x00\x00\x08\x04\xd2\x16/", 8),
                                 "*1\r\n$4\r\nPING\r\n",
                                 "GETX\r\n",
                                 "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                 "AMQP\x01",
                                 std::string("\x16\x02\x00", 3),
                                 "HELLO world without end",
                                 std::string(100, 'x')};
  for (const std::string& bytes : passing) {
    for (const std::size_t step : {1U, 100000U}) {
      NameInspector reader = inspector(NameCheck::kIfSpoken);
      const Inspection result = feed(reader, bytes, step);
      EXPECT_EQ(result.verdict, Verdict::kPass) << bytes;
      EXPECT_TRUE(reader.opaque()) << bytes;
    }
  }
  const std::string refused[] = {kEvil,
                                 "GET / HTTP/1.1\nHost: evil.example\n\n",
                                 "\r\n" + kEvil,
                                 " " + kEvil,
                                 "get  /x http/1.1\r\n\r\n",
                                 "GET\x0b/ HTTP/1.1\r\n\r\n",
                                 "GET /\x01 HTTP/1.1\r\n\r\n",
                                 "GET / HTTP/1.1 \r\n\r\n",
                                 "GET / HTTP/1.1\r\n\r\n",
                                 "GET /" + std::string(9000, 'x'),
                                 "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n"};
  for (const std::string& bytes : refused) {
    NameInspector reader = inspector(NameCheck::kIfSpoken);
    const Inspection result = feed(reader, bytes + std::string(kMaxHeld, 'x'), 1000);
    EXPECT_EQ(result.verdict, Verdict::kRefuse) << bytes.substr(0, 100);
  }
  NameInspector good = inspector(NameCheck::kIfSpoken);
  EXPECT_EQ(feed(good, kGet, 1).verdict, Verdict::kPass);
  EXPECT_EQ(good.name(), "good.example");
}

TEST(HttpName, WithoutACheckEverythingPasses) {
  NameInspector reader = inspector(NameCheck::kNone);
  EXPECT_TRUE(reader.opaque());
  EXPECT_EQ(reader.on_client(as_bytes(kEvil)).release, kEvil.size());
}

TEST(HttpName, DeniedNamesAreAnObstacleOnly) {
  const auto not_bad = [](std::string_view name) { return name != "bad.example"; };
  const struct {
    const char* bytes;
    Verdict verdict;
  } table[] = {
      {"GET / HTTP/1.1\r\nHost: bad.example\r\n\r\n", Verdict::kRefuse},
      {"GET / HTTP/1.1\r\nHost: any.example\r\n\r\n", Verdict::kPass},
      {"GET / HTTP/1.0\r\n\r\n", Verdict::kPass},
      {"CONNECT any.example:443 HTTP/1.1\r\n\r\nopaque", Verdict::kPass},
      {"CONNECT bad.example:443 HTTP/1.1\r\n\r\n", Verdict::kRefuse},
      {"SSH-2.0-x\r\n", Verdict::kPass},
  };
  for (const auto& line : table) {
    NameInspector reader(NameCheck::kNotDenied, not_bad, {});
    EXPECT_EQ(feed(reader, line.bytes, 4).verdict, line.verdict) << line.bytes;
  }
}

TEST(HttpName, AReplacedPolicyJudgesTheNextRequest) {
  NameInspector reader = inspector();
  EXPECT_EQ(feed(reader, kGet, 100).verdict, Verdict::kPass);
  reader.set_judge([](std::string_view) { return false; });
  EXPECT_EQ(feed(reader, kGet, 100).verdict, Verdict::kRefuse);
}

}  // namespace
}  // namespace drupe::net
