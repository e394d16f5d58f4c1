#include "net/program/ledger_map.h"

#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace drupe::net {
namespace {

const FlowKey kFour{PacketAddress::v4(10, 0, 0, 2), PacketAddress::v4(192, 0, 2, 1), 40000, 443};

LogEntry entry(std::uint64_t sequence) {
  LogEntry out;
  out.kind = LogKind::kConnection;
  out.allowed = true;
  out.name = "name" + std::to_string(sequence) + ".example";
  out.detail = "tcp";
  out.address = IpAddress::parse("192.0.2.1");
  out.port = 443;
  out.rule = "*.example";
  out.sequence = sequence;
  out.first_ms = 5;
  out.last_ms = 6;
  return out;
}

class LedgerMapTest : public ::testing::Test {
 protected:
  LedgerMapTest() : memory_(make_ledger().value()), map_(LedgerMap::open(memory_).value()) {}
  /// What the process that comes next finds.
  LedgerRemains remains() { return LedgerMap::open(memory_).value().take(); }

  UniqueFd memory_;
  LedgerMap map_;
};

TEST_F(LedgerMapTest, ASuccessorFindsWhatStood) {
  FlowKey six = kFour;
  six.guest.v6 = six.remote.v6 = true;
  map_.set_flow({0, 1}, &kFour);
  map_.set_flow({7, 1}, &six);
  map_.set_flow({8, 1}, &six);
  map_.set_flow({8, 1}, nullptr);
  map_.set_flow({1U << 30, 1}, &kFour);  // has no place
  map_.set_used(12345);
  map_.set_entry(entry(1));
  map_.set_entry(entry(2));
  LogEntry again = entry(1);
  again.count = 9;
  again.last_ms = 77;
  map_.set_entry(again);
  EXPECT_EQ(ledger_used_bytes(memory_.get()), 12345U);
  const LedgerRemains found = remains();
  EXPECT_EQ(found.flows, (std::vector<FlowKey>{kFour, six}));
  ASSERT_EQ(found.entries.size(), 2U);
  EXPECT_EQ(to_json_line(found.entries[0]), to_json_line(again));
  EXPECT_EQ(to_json_line(found.entries[1]), to_json_line(entry(2)));
  // Taken out.
  EXPECT_TRUE(remains().flows.empty());
  EXPECT_TRUE(remains().entries.empty());
}

TEST_F(LedgerMapTest, OnlyTheNewestEntriesWithoutAGapCount) {
  for (const std::uint64_t sequence :
       {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{4}, std::uint64_t{5}, std::uint64_t{1} << 60})
    map_.set_entry(entry(sequence));
  const LedgerRemains found = remains();
  ASSERT_EQ(found.entries.size(), 2U);
  EXPECT_EQ(found.entries[0].sequence, 4U);
}

TEST_F(LedgerMapTest, LongTextsFit) {
  LogEntry longest = entry(1);
  longest.name = longest.detail = longest.rule = std::string(EgressLog::kLongestText, 'x');
  map_.set_entry(longest);
  const LedgerRemains found = remains();
  ASSERT_EQ(found.entries.size(), 1U);
  EXPECT_EQ(found.entries[0].name, longest.name);
  EXPECT_LT(found.entries[0].rule.size(), longest.rule.size());
}

TEST_F(LedgerMapTest, AnyBytesAreReadWithinBounds) {
  const std::string noise(sizeof(Ledger) - 16, '\xff');
  ASSERT_EQ(::pwrite(memory_.get(), noise.data(), noise.size(), 16), static_cast<ssize_t>(noise.size()));
  const LedgerRemains found = remains();
  EXPECT_TRUE(found.flows.empty());
  EXPECT_TRUE(found.entries.empty());
}

TEST(Ledger, AnythingElseIsNone) {
  const UniqueFd growing(::memfd_create("ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(growing.get(), sizeof(Ledger)), 0);
  EXPECT_FALSE(LedgerMap::open(growing));  // its size could change
  EXPECT_FALSE(LedgerMap::open(UniqueFd()));
  const UniqueFd other = make_ledger().value();
  const std::uint32_t version = kLedgerVersion + 1;
  ASSERT_EQ(::pwrite(other.get(), &version, sizeof version, 4), 4);
  EXPECT_FALSE(LedgerMap::open(other));
}

}  // namespace
}  // namespace drupe::net
