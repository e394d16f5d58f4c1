#include <gtest/gtest.h>

#include "net/inspect/name_inspector.h"
#include "net/inspect/testing/hello.h"

namespace drupe::net {
namespace {

using testing::handshake;
using testing::hello_body;
using testing::hello_for;
using testing::HelloOptions;
using testing::records;
using Verdict = Inspection::Verdict;

bool is_good(std::string_view name) {
  return name == "good.example" || name == "Good.Example";
}

NameInspector inspector(NameCheck check = NameCheck::kRequired, NameInspector::Options options = {}) {
  return {check, is_good, options};
}

/// All of `bytes` in steps; never is a byte released that a shorter beginning had not judged.
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

std::string hello(HelloOptions options, std::size_t record = 16384) {
  return records(handshake(hello_body(options)), record);
}

HelloOptions good() {
  HelloOptions options;
  options.names = {"good.example"};
  return options;
}

TEST(TlsName, IsFoundHoweverTheHelloIsCut) {
  const std::string body = handshake(hello_body(good()));
  for (const std::size_t record : {1U, 2U, 5U, 100U, 16384U}) {
    const std::string bytes = records(body, record);
    for (const std::size_t step : {1U, 2U, 3U, 7U, 100000U}) {
      NameInspector reader = inspector();
      const Inspection result = feed(reader, bytes, step);
      EXPECT_EQ(result.verdict, Verdict::kPass) << result.reason;
      EXPECT_EQ(result.release, bytes.size());
      EXPECT_EQ(reader.name(), "good.example");
    }
  }
}

TEST(TlsName, NothingIsReleasedBeforeTheWholeHelloIsJudged) {
  const std::string bytes = hello(good());
  NameInspector reader = inspector();
  for (std::size_t at = 0; at + 1 < bytes.size(); ++at) {
    const Inspection now = reader.on_client(as_bytes(std::string_view(bytes).substr(at, 1)));
    ASSERT_EQ(now.verdict, Verdict::kNeedMore);
    ASSERT_EQ(now.release, 0U);
  }
  EXPECT_EQ(reader.on_client(as_bytes(std::string_view(bytes).substr(bytes.size() - 1))).release,
            bytes.size());
}

TEST(TlsName, Refusals) {
  HelloOptions none = good();
  none.names.clear();
  HelloOptions other = good();
  other.names = {"other.example"};
  HelloOptions two = good();
  two.names = {"good.example", "other.example"};
  HelloOptions nul = good();
  nul.names = {std::string("good.example\0", 13)};
  HelloOptions empty = good();
  empty.names = {""};
  HelloOptions encrypted = good();
  encrypted.encrypted = true;
  HelloOptions twice = good();
  twice.repeat_extension = true;
  HelloOptions huge = good();
  huge.padding = kMaxHeld;
  const std::string body = handshake(hello_body(good()));
  const struct {
    std::string bytes;
    const char* reason;
  } table[] = {
      {hello(none), "names no server"},
      {hello(other), "'other.example' is not allowed"},
      {hello(two), "exactly one"},
      {hello(nul), "not allowed"},
      {hello(empty), "empty"},
      {hello(encrypted), "encrypted"},
      {hello(twice), "twice"},
      {hello(huge), "too long"},
      {records(body + "x"), "bytes follow"},
      {records(body + body), "bytes follow"},
      {records(body, 16384, 23), "neither TLS"},
      {records(handshake(hello_body(good()), 2)), "does not begin with a TLS client hello"},
      {records(body.substr(0, 40)) + records(body.substr(40), 16384, 20), "does not begin"},
      {std::string("\x16\x03\x01\x00\x00", 5), "impossible length"},
      {std::string("\x16\x03\x01\xff\xff", 5), "no TLS record"},
      {std::string("\x80\x2e\x01\x03\x01", 5), "neither TLS"},
      {std::string("\x16\x02\x01\x00\x05", 5), "neither TLS"},
      {records(handshake(hello_body(good()) + "x")), "do not fit"},
      {records(handshake(hello_body(good()).substr(0, 60))), "cut short"},
  };
  for (const auto& line : table) {
    for (const std::size_t step : {1U, 100000U}) {
      NameInspector reader = inspector();
      const Inspection result = feed(reader, line.bytes, step);
      EXPECT_EQ(result.verdict, Verdict::kRefuse) << line.reason;
      EXPECT_NE(result.reason.find(line.reason), std::string::npos) << line.reason << " / " << result.reason;
      EXPECT_EQ(result.release, 0U);
      EXPECT_EQ(reader.on_client(as_bytes("more")).verdict, Verdict::kRefuse) << "for good";
    }
  }
}

TEST(TlsName, AnEncryptedHelloCanBeTakenByItsOuterName) {
  HelloOptions encrypted = good();
  encrypted.encrypted = true;
  NameInspector reader = inspector(NameCheck::kRequired, {EncryptedHello::kOuterName});
  EXPECT_EQ(feed(reader, hello(encrypted), 9).verdict, Verdict::kPass);
  encrypted.names = {"other.example"};
  NameInspector strict = inspector(NameCheck::kRequired, {EncryptedHello::kOuterName});
  EXPECT_EQ(feed(strict, hello(encrypted), 9).verdict, Verdict::kRefuse);
}

TEST(TlsName, ASecondHelloMustRepeatTheName) {
  HelloOptions other = good();
  other.names = {"other.example"};
  HelloOptions early = good();
  early.early_data = true;
  const std::string change = records("\x01", 1, 20);
  const std::string data = records("early data", 100, 23);
  const struct {
    std::string bytes;
    Verdict verdict;
  } table[] = {
      {hello(good()) + hello(good()), Verdict::kPass},
      {hello(good()) + change + hello(good()), Verdict::kPass},
      {hello(good()) + hello(other), Verdict::kRefuse},
      {hello(good()) + change + hello(other, 1), Verdict::kRefuse},
      {hello(early) + data + data + hello(other), Verdict::kRefuse},
      {hello(early) + data + hello(good()), Verdict::kPass},
      {hello(good()) + records(handshake("key", 16)) + hello(other),
       Verdict::kPass},                                                // TLS 1.2 goes on: no retry
      {hello(good()) + change + data + hello(other), Verdict::kPass},  // encrypted from here on
      {hello(good()) + records("x", 1, 99), Verdict::kRefuse},
  };
  int number = 0;
  for (const auto& line : table) {
    ++number;
    for (const std::size_t step : {1U, 3U, 100000U}) {
      NameInspector reader = inspector();
      EXPECT_EQ(feed(reader, line.bytes, step).verdict, line.verdict) << "line " << number;
    }
  }
}

TEST(TlsName, AfterTls12TheRestIsOpaque) {
  HelloOptions old = good();
  old.tls13 = false;
  NameInspector reader = inspector();
  EXPECT_EQ(feed(reader, hello(old), 3).verdict, Verdict::kPass);
  EXPECT_TRUE(reader.opaque());
  EXPECT_EQ(reader.on_client(as_bytes("anything")).verdict, Verdict::kPass);
}

TEST(TlsName, DeniedNamesAreAnObstacleOnly) {
  const auto not_bad = [](std::string_view name) { return name != "bad.example"; };
  HelloOptions none = good();
  none.names.clear();
  NameInspector nameless(NameCheck::kNotDenied, not_bad, {});
  EXPECT_EQ(feed(nameless, hello(none), 5).verdict, Verdict::kPass);
  NameInspector bad(NameCheck::kNotDenied, not_bad, {});
  EXPECT_EQ(feed(bad, hello_for("bad.example"), 5).verdict, Verdict::kRefuse);
}

}  // namespace
}  // namespace drupe::net
