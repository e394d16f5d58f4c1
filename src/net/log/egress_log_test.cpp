#include "net/log/egress_log.h"

#include <gtest/gtest.h>

namespace drupe::net {
namespace {

using std::chrono::seconds;
const std::chrono::steady_clock::time_point kStart{seconds(1000)};
constexpr std::int64_t kWall = 1767323045678;  // 2026-01-02T03:04:05.678Z

LogEntry refused_name(std::string name) {
  LogEntry entry;
  entry.name = std::move(name);
  entry.detail = "TXT";
  entry.rule = "no rule";
  return entry;
}

TEST(EgressLog, Lines) {
  std::int64_t wall = kWall;
  EgressLog log([&] { return wall; });
  log.add(refused_name("evil.example"), kStart);
  wall += 1000;
  log.add(refused_name("evil.example"), kStart + seconds(1));
  LogEntry connection;
  connection.kind = LogKind::kConnection;
  connection.allowed = true;
  connection.name = "good.example";
  connection.detail = "tcp";
  connection.address = IpAddress::parse("2001:db8::1");
  connection.port = 443;
  connection.rule = "allow good.example:443 (@pip)";
  log.add(connection, kStart + seconds(1));
  const auto entries = log.read(0, 10);
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(to_text_line(entries[0]), "2026-01-02T03:04:05.678Z refused name evil.example TXT (no rule) x2");
  EXPECT_EQ(
      to_json_line(entries[0]),
      R"({"seq":1,"time":"2026-01-02T03:04:05.678Z","kind":"name","allowed":false,"name":"evil.example",)"
      R"("detail":"TXT","rule":"no rule","count":2,"last":"2026-01-02T03:04:06.678Z"})");
  EXPECT_EQ(to_text_line(entries[1]),
            "2026-01-02T03:04:06.678Z allowed connection good.example [2001:db8::1]:443 tcp "
            "(allow good.example:443 (@pip))");
  EXPECT_EQ(
      to_json_line(entries[1]),
      R"({"seq":2,"time":"2026-01-02T03:04:06.678Z","kind":"connection","allowed":true,"name":"good.example",)"
      R"x("detail":"tcp","address":"2001:db8::1","port":443,"rule":"allow good.example:443 (@pip)","count":1,)x"
      R"("last":"2026-01-02T03:04:06.678Z"})");
}

TEST(EgressLog, HostileTextStaysOnItsLine) {
  EgressLog log([] { return kWall; });
  log.add(refused_name("a\n\"b\\\x1b[31m\xff"), kStart);
  const auto entries = log.read(0, 1);
  EXPECT_NE(to_json_line(entries[0]).find(R"("name":"a\u000a\"b\\\u001b[31m\u00ff")"), std::string::npos);
  EXPECT_NE(to_text_line(entries[0]).find("a?\"b\\?[31m?"), std::string::npos);
  log.add(refused_name(std::string(100000, 'x')), kStart);
  EXPECT_LT(to_json_line(log.read(1, 1)[0]).size(), 1000U);
}

TEST(EgressLog, TheNewestStayAndTheRestIsCounted) {
  EgressLog log([] { return kWall; }, 10);
  for (int i = 0; i < 25; ++i) log.add(refused_name("n" + std::to_string(i) + ".example"), kStart);
  EXPECT_EQ(log.size(), 10U);
  EXPECT_EQ(log.counters().refused, 25U);
  EXPECT_EQ(log.counters().allowed, 0U);
  EXPECT_EQ(log.counters().dropped, 15U);
  EXPECT_EQ(log.last_sequence(), 25U);
  EXPECT_EQ(log.read(0, 100).size(), 10U);
  EXPECT_EQ(log.read(0, 100).front().sequence, 16U);
  EXPECT_EQ(log.read(20, 100).size(), 5U);
  EXPECT_EQ(log.read(20, 2).back().sequence, 22U);
  EXPECT_TRUE(log.read(25, 100).empty());
  EXPECT_TRUE(log.read(1000, 100).empty());
}

TEST(EgressLog, MergesOnlyWhatIsEqualAndNear) {
  EgressLog log([] { return kWall; });
  log.add(refused_name("a.example"), kStart);
  log.add(refused_name("b.example"), kStart);
  log.add(refused_name("a.example"), kStart + EgressLog::kMergeWindow);
  EXPECT_EQ(log.size(), 2U);
  log.add(refused_name("a.example"), kStart + 3 * EgressLog::kMergeWindow);
  EXPECT_EQ(log.size(), 3U);
  LogEntry allowed = refused_name("a.example");
  allowed.allowed = true;
  log.add(allowed, kStart + 3 * EgressLog::kMergeWindow);
  EXPECT_EQ(log.size(), 4U);
  EXPECT_EQ(log.counters().refused, 4U);
  EXPECT_EQ(log.counters().allowed, 1U);
}

TEST(EgressLog, GoesOnFromAnEarlierOne) {
  EgressLog first([] { return std::int64_t{7}; });
  const auto now = std::chrono::steady_clock::now();
  for (const char* name : {"a.example", "b.example"}) {
    LogEntry entry;
    entry.name = name;
    first.add(entry, now);
  }
  EgressLog second([] { return std::int64_t{8}; });
  std::vector<std::uint64_t> noted;
  second.on_entry([&](const LogEntry& entry) { noted.push_back(entry.sequence); });
  second.restore(first.read(0, 10));
  LogEntry again;
  again.name = "b.example";
  second.add(again, now);  // an entry of its own
  second.add(again, now);  // merged
  const auto all = second.read(0, 10);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(to_json_line(all[0]), to_json_line(first.read(0, 1)[0]));
  EXPECT_EQ(all[2].sequence, 3U);
  EXPECT_EQ(all[2].count, 2U);
  EXPECT_EQ(noted, (std::vector<std::uint64_t>{1, 2, 3, 3}));
  EgressLog small([] { return std::int64_t{9}; }, 1);
  small.restore(first.read(0, 10));
  EXPECT_EQ(small.size(), 1U);
  EXPECT_EQ(small.last_sequence(), 2U);
}

}  // namespace
}  // namespace drupe::net
