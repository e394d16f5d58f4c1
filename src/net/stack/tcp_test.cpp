// The TCP side under a guest that a test writes segment by segment, with a clock that it moves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/stack/testing/fake_guest.h"

namespace drupe::net {
namespace {

using namespace std::chrono_literals;
using namespace tcp_flag;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::SeenSegment;

const FlowKey kKey{testing::kGuest4, testing::kWorld4, 40000, 443};
constexpr std::uint32_t kIsn = 0xfffffff0;  // numbers wrap early

class Tcp : public ::testing::Test {
 protected:
  Tcp() { restart(testing::test_config()); }
  void restart(const StackConfig& config) {
    stack = std::make_unique<Stack>(*validated(config), link, time, events, events);
    events.stack = stack.get();
  }
  // One segment of the guest, from the byte `at` of its stream.
  void guest(std::uint8_t flags, std::int64_t at, std::string_view payload = {}, const FlowKey& key = kKey) {
    TcpSegment segment;
    segment.seq = kIsn + 1 + static_cast<std::uint32_t>(at);
    segment.ack = (flags & kAck) != 0 ? ack : 0;
    segment.flags = flags;
    segment.window = window;
    stack->input(testing::tcp_frame(key, segment, payload));
  }
  void syn(const FlowKey& key = kKey, std::uint32_t isn = kIsn) {
    TcpSegment segment = bare_segment(isn, 0, kSyn);
    segment.window = 65535;
    segment.mss = 1000;
    stack->input(testing::tcp_frame(key, segment, {}));
  }
  std::vector<SeenSegment> flush() {
    stack->flush();
    std::vector<SeenSegment> seen;
    for (const auto& frame : link.take()) {
      const auto segment = testing::seen_segment(frame);
      EXPECT_TRUE(segment.has_value());
      if (segment) seen.push_back(*segment);
    }
    return seen;
  }
  std::vector<SeenSegment> after(std::chrono::nanoseconds wait) {
    time.pass(wait);
    stack->advance();
    return flush();
  }
  void establish() {
    syn();
    stack->tcp().accept(events.last);
    const auto answer = flush();
    ASSERT_EQ(answer.size(), 1U);
    EXPECT_EQ(answer[0].segment.flags, kSyn | kAck);
    EXPECT_EQ(answer[0].segment.ack, kIsn + 1);
    ack = answer[0].segment.seq + 1;
    guest(kAck, 0);
    flush();
    EXPECT_THAT(events.take_events(), ElementsAre("connect", "established"));
  }
  void world_sends(std::string_view bytes) {
    const auto room = stack->tcp().write_room(events.last);
    ASSERT_GE(room[0].size(), bytes.size());
    std::copy(bytes.begin(), bytes.end(), room[0].begin());
    stack->tcp().commit(events.last, bytes.size());
  }
  std::uint32_t told() const { return kIsn + 1; }

  testing::ManualTime time;
  testing::FrameLog link;
  testing::EventLog events;
  std::unique_ptr<Stack> stack;
  std::uint32_t ack = 0;
  std::uint16_t window = 65535;
};

TEST_F(Tcp, AnswersASynOnlyWhenTheUserHasDecided) {
  syn();
  EXPECT_THAT(flush(), IsEmpty());
  syn();  // retransmitted
  EXPECT_THAT(events.take_events(), ElementsAre("connect"));
  EXPECT_THAT(after(4s), IsEmpty());
  stack->tcp().accept(events.last);
  const auto answer = flush();
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_EQ(answer[0].segment.mss, 1460);
  EXPECT_FALSE(answer[0].segment.window_scale.has_value());  // the guest offered none
}

TEST_F(Tcp, ASynThatIsNotRepeatedIsGivenUp) {
  syn();
  EXPECT_THAT(after(4s), IsEmpty());
  EXPECT_EQ(stack->tcp().size(), 1U);
  EXPECT_THAT(after(2s), IsEmpty());
  EXPECT_THAT(events.take_events(), ElementsAre("connect", "closed 2"));
  EXPECT_EQ(stack->tcp().size(), 0U);
}

TEST_F(Tcp, ASynThatIsRepeatedWaitsForItsDecision) {
  syn();
  for (const auto pause : {1s, 2s, 4s, 8s, 16s, 32s}) {  // Linux's
    after(pause);
    syn();
  }
  EXPECT_THAT(events.take_events(), ElementsAre("connect"));
  stack->tcp().accept(events.last);
  EXPECT_EQ(flush().size(), 1U);
}

TEST_F(Tcp, RefusalIsAReset) {
  syn();
  stack->tcp().refuse(events.last);
  const auto answer = flush();
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_EQ(answer[0].segment.flags, kRst | kAck);
  EXPECT_EQ(answer[0].segment.ack, kIsn + 1);
  flush();
  EXPECT_EQ(stack->tcp().size(), 0U);
}

TEST_F(Tcp, UnreachableQuotesTheSyn) {
  syn();
  stack->tcp().unreachable(events.last, Unreachable::kHost);
  stack->flush();
  const auto frames = link.take();
  ASSERT_EQ(frames.size(), 1U);
  const auto packet = testing::seen_packet(frames[0]);
  ASSERT_TRUE(packet && packet->protocol == kProtocolIcmp);
  EXPECT_EQ(packet->payload[0], 3);
  EXPECT_EQ(packet->payload[1], 1);
  EXPECT_EQ(load32(packet->payload.data() + 8 + kIpv4Header + 4), kIsn);
}

TEST_F(Tcp, LostSynAckIsSentAgainAndGivenUp) {
  syn();
  stack->tcp().accept(events.last);
  EXPECT_EQ(flush().size(), 1U);
  syn();
  EXPECT_EQ(flush().size(), 1U);  // the guest asked again
  int answers = 0;
  for (int i = 0; i < 60; ++i) {
    for (const auto& seen : after(1s)) answers += seen.segment.flags == (kSyn | kAck) ? 1 : 0;
  }
  EXPECT_EQ(answers, 5);
  EXPECT_THAT(events.take_events(), ElementsAre("connect", "closed 2"));
  EXPECT_EQ(stack->tcp().size(), 0U);
}

TEST_F(Tcp, BytesInOrderWhateverTheOrderOfSegments) {
  establish();
  guest(kAck, 6, "789");
  guest(kAck, 3, "456");
  guest(kAck, 9, "0");
  EXPECT_EQ(events.received, "");
  EXPECT_GE(flush().size(), 3U);  // duplicate acknowledgements that make the guest retransmit
  guest(kAck, 0, "123");
  const auto answer = flush();
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_EQ(answer[0].segment.ack, told() + 10);
  EXPECT_EQ(events.received, "1234567890");
}

TEST_F(Tcp, OverlapsWithOtherContentChangeNothing) {
  establish();
  guest(kAck, 4, "good");
  guest(kAck, 2, "XXevilXX");  // the hole before and the place behind are new, the middle is not
  guest(kAck, 0, "abYYYYYYYYYY");
  flush();
  EXPECT_EQ(events.received, "abXXgoodXXYY");
  guest(kAck, 0, "ZZZZZZZZZZZZ!");  // all old but one
  flush();
  EXPECT_EQ(events.received, "abXXgoodXXYY!");
}

TEST_F(Tcp, RetransmissionWithOtherContentWhileHeldChangesNothing) {
  establish();
  events.appetite = 0;  // held, as for inspection
  guest(kAck, 0, "GET /good");
  flush();
  guest(kAck, 0, "GET /evil and more");
  flush();
  std::string held;
  for (const auto piece : stack->tcp().readable(events.last)) held.append(as_text(piece));
  EXPECT_EQ(held, "GET /good and more");
}

TEST_F(Tcp, OneByteAtATime) {
  establish();
  const std::string hello = "a client hello that comes in single bytes";
  for (std::size_t i = 0; i < hello.size(); ++i) {
    guest(kAck, static_cast<std::int64_t>(i), hello.substr(i, 1));
    if (i % 5 == 0) flush();
  }
  flush();
  EXPECT_EQ(events.received, hello);
}

TEST_F(Tcp, SegmentsOutsideTheWindowAreAnsweredAndDropped) {
  establish();
  flush();
  guest(kAck, 1 << 20, "far away");
  guest(kAck, -2000, "long ago");
  const auto answers = flush();
  ASSERT_FALSE(answers.empty());
  for (const auto& answer : answers) EXPECT_EQ(answer.segment.ack, told());
  EXPECT_EQ(events.received, "");
}

TEST_F(Tcp, ImpossibleAcknowledgementsDropTheirBytes) {
  establish();
  time.pass(1s);
  ack += 1000;  // of bytes that were never sent
  guest(kAck, 0, "evil");
  EXPECT_EQ(flush().size(), 1U);
  ack -= 1000 + (1U << 20);
  time.pass(1s);
  guest(kAck, 0, "evil");
  EXPECT_EQ(flush().size(), 1U);
  EXPECT_EQ(events.received, "");
  EXPECT_EQ(stack->counters().count(DropReason::kBadSequence), 2U);
}

TEST_F(Tcp, ResetNeedsTheExactNumber) {
  establish();
  time.pass(1s);
  guest(kRst, 100);
  const auto challenge = flush();
  ASSERT_EQ(challenge.size(), 1U);
  EXPECT_EQ(challenge[0].segment.ack, told());
  guest(kRst, -1);
  guest(kRst, 1 << 20);
  EXPECT_THAT(flush(), IsEmpty());
  EXPECT_THAT(events.take_events(), IsEmpty());
  guest(kRst, 0);
  EXPECT_THAT(events.take_events(), ElementsAre("closed 1"));
  EXPECT_EQ(stack->tcp().size(), 0U);
}

TEST_F(Tcp, SynInAnEstablishedConnectionIsChallenged) {
  establish();
  time.pass(1s);
  guest(kSyn, 5);
  const auto challenge = flush();
  ASSERT_EQ(challenge.size(), 1U);
  EXPECT_EQ(challenge[0].segment.flags, kAck);
  time.pass(1s);
  syn();
  EXPECT_EQ(flush().size(), 1U);
  EXPECT_THAT(events.take_events(), IsEmpty());
}

TEST_F(Tcp, ChallengesAreLimited) {
  establish();
  time.pass(1s);
  flush();
  int answers = 0;
  for (int i = 0; i < 1000; ++i) {
    guest(kSyn, 5);
    answers += static_cast<int>(flush().size());
  }
  EXPECT_EQ(answers, 1);
}

TEST_F(Tcp, WindowClosesWithoutAReaderAndOpensAgain) {
  establish();
  events.appetite = 0;
  const std::string piece(1000, 'x');
  std::int64_t at = 0;
  std::uint16_t last = 1;
  for (int i = 0; i < 1000 && last != 0; ++i) {
    guest(kAck, at, piece);
    at += 1000;
    last = flush().back().segment.window;
  }
  EXPECT_EQ(last, 0);
  for (int i = 0; i < 5; ++i) {  // beyond the window: no more than the buffer is kept
    guest(kAck, at + i * 1000, piece);
    EXPECT_EQ(flush().back().segment.window, 0);
  }
  const std::size_t held = size_of(stack->tcp().readable(events.last));
  EXPECT_EQ(held, testing::test_config().tcp.buffer_size);
  guest(kAck, static_cast<std::int64_t>(held) - 1);  // a probe of the guest
  EXPECT_EQ(flush().size(), 1U);
  stack->tcp().consume(events.last, 100);
  EXPECT_THAT(flush(), IsEmpty());  // too little to tell
  stack->tcp().consume(events.last, held - 100);
  const auto update = flush();
  ASSERT_EQ(update.size(), 1U);
  EXPECT_GT(update[0].segment.window, 30000);
}

TEST_F(Tcp, RetransmitsWithBackoffAndGivesUp) {
  establish();
  time.pass(1ms);
  world_sends("hello");
  ASSERT_EQ(flush().size(), 1U);
  std::vector<std::chrono::milliseconds> waits;
  std::chrono::milliseconds waited{0};
  std::string end;
  for (int i = 0; i < 40'000 && end.empty(); ++i) {
    for (const auto& seen : after(10ms)) {
      if (seen.segment.has(kRst)) end = "reset";
      if (seen.payload == "hello") {
        waits.push_back(waited);
        waited = 0ms;
      }
    }
    waited += 10ms;
  }
  ASSERT_EQ(waits.size(), 10U);
  for (std::size_t i = 1; i < waits.size(); ++i)
    EXPECT_GE(waits[i] + 20ms, std::min<std::chrono::milliseconds>(waits[i - 1] * 2, 30s));
  EXPECT_EQ(end, "reset");
  EXPECT_THAT(events.take_events(), ElementsAre("closed 2"));
}

TEST_F(Tcp, WhatTheLinkDoesNotTakeIsNotLost) {
  establish();
  link.room = 1;
  world_sends(std::string(3000, 'x'));
  EXPECT_EQ(flush().size(), 1U);
  EXPECT_THAT(after(5s), IsEmpty());  // full: nothing counts as lost, nobody gives up
  EXPECT_THAT(after(500s), IsEmpty());
  link.room = 100;
  stack->writable();
  std::size_t bytes = 0;
  for (const auto& seen : flush()) bytes += seen.payload.size();
  EXPECT_EQ(bytes, 2000U);
  EXPECT_EQ(stack->counters().tcp_retransmits, 0U);
}

TEST_F(Tcp, FastRetransmit) {
  establish();
  world_sends(std::string(5000, 'x'));
  EXPECT_EQ(flush().size(), 5U);
  for (int i = 0; i < 3; ++i) guest(kAck, 0);
  const auto again = flush();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].segment.seq, ack);
  EXPECT_EQ(again[0].payload.size(), 1000U);
  ack += 2000;  // the first hole is filled, there is another
  guest(kAck, 0);
  const auto next = flush();
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].segment.seq, ack);
}

TEST_F(Tcp, ZeroWindowIsProbedForAsLongAsTheGuestAnswers) {
  establish();
  window = 0;
  guest(kAck, 0);
  flush();
  world_sends("hello");
  EXPECT_THAT(flush(), IsEmpty());
  int probes = 0;
  for (int i = 0; i < 600; ++i) {
    for (const auto& seen : after(1s)) {
      EXPECT_EQ(seen.payload, "");
      EXPECT_EQ(seen.segment.seq, ack - 1);
      ++probes;
      guest(kAck, 0);
    }
  }
  EXPECT_GT(probes, 15);
  EXPECT_THAT(events.take_events(), IsEmpty());
  window = 1000;
  guest(kAck, 0);
  const auto data = flush();
  ASSERT_EQ(data.size(), 1U);
  EXPECT_EQ(data[0].payload, "hello");
}

TEST_F(Tcp, SmallWindowsDoNotMakeSmallSegments) {
  establish();
  window = 2500;
  guest(kAck, 0);
  flush();
  world_sends(std::string(10'000, 'x'));
  const auto sent = flush();
  ASSERT_EQ(sent.size(), 2U);
  for (const auto& seen : sent) EXPECT_EQ(seen.payload.size(), 1000U);
}

TEST_F(Tcp, GuestClosesFirst) {
  establish();
  guest(kAck | kFin, 0, "bye");
  auto answer = flush();
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_EQ(answer[0].segment.ack, told() + 4);
  EXPECT_THAT(events.take_events(), ElementsAre("eof"));
  world_sends("later");  // the other direction lives
  answer = flush();
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_EQ(answer[0].payload, "later");
  ack += 5;
  guest(kAck, 4);
  stack->tcp().shutdown_write(events.last);
  answer = flush();
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_TRUE(answer[0].segment.has(kFin));
  ack += 1;
  guest(kAck, 4);
  flush();
  EXPECT_THAT(events.take_events(), ElementsAre("closed 0"));
  EXPECT_EQ(stack->tcp().size(), 0U);  // the guest has the TIME-WAIT
}

TEST_F(Tcp, WorldClosesFirstAndTimeWaitEnds) {
  establish();
  world_sends("all");
  stack->tcp().shutdown_write(events.last);
  auto sent = flush();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_TRUE(sent[0].segment.has(kFin));
  ack += 4;
  guest(kAck, 0, "still here");
  flush();
  EXPECT_EQ(events.received, "still here");
  guest(kAck | kFin, 10);
  EXPECT_EQ(flush().back().segment.ack, told() + 11);
  EXPECT_THAT(events.take_events(), ElementsAre("eof", "closed 0"));
  guest(kAck | kFin, 10);  // our acknowledgement was lost
  EXPECT_EQ(flush().size(), 1U);
  EXPECT_EQ(stack->tcp().size(), 1U);
  after(3s);
  EXPECT_EQ(stack->tcp().size(), 0U);
}

TEST_F(Tcp, BothCloseAtOnce) {
  establish();
  stack->tcp().shutdown_write(events.last);
  flush();
  guest(kAck | kFin, 0);  // does not acknowledge ours
  EXPECT_EQ(flush().size(), 1U);
  ack += 1;
  guest(kAck, 1);
  flush();
  EXPECT_THAT(events.take_events(), ElementsAre("eof", "closed 0"));
  after(3s);
  EXPECT_EQ(stack->tcp().size(), 0U);
}

TEST_F(Tcp, TheEndIsToldAfterTheLastByteIsTaken) {
  establish();
  events.appetite = 3;
  guest(kAck | kFin, 0, "abcdef");
  flush();
  EXPECT_THAT(events.take_events(), IsEmpty());
  events.appetite = 100;
  events.read(events.last);
  flush();
  EXPECT_THAT(events.take_events(), ElementsAre("eof"));
  EXPECT_EQ(events.received, "abcdef");
}

TEST_F(Tcp, AnEarlyOrSecondFinIsNone) {
  establish();
  guest(kAck, 5, "world");
  guest(kAck | kFin, 0, "hell");  // would end the stream before bytes that are held
  flush();
  EXPECT_THAT(events.take_events(), IsEmpty());
  guest(kAck, 4, "o");
  flush();
  EXPECT_EQ(events.received, "helloworld");
  guest(kAck | kFin, 12);  // with a hole before it
  guest(kAck | kFin, 11);
  guest(kAck, 10, "!!and more");
  flush();
  EXPECT_EQ(events.received, "helloworld!!");
  EXPECT_THAT(events.take_events(), ElementsAre("eof"));
}

TEST_F(Tcp, ANewConnectionMayBeginInTimeWait) {
  establish();
  stack->tcp().shutdown_write(events.last);
  flush();
  ack += 1;
  guest(kAck | kFin, 0);
  flush();
  events.take_events();
  syn(kKey, kIsn - 100);  // an old one
  EXPECT_THAT(events.take_events(), IsEmpty());
  syn(kKey, kIsn + 100'000);
  EXPECT_THAT(events.take_events(), ElementsAre("connect"));
  EXPECT_EQ(stack->tcp().size(), 1U);
}

TEST_F(Tcp, HalfClosedConnectionsOfADeadGuestAreFreed) {
  events.accept_all = true;
  for (std::uint16_t port = 1; port <= 300; ++port) {
    const FlowKey key{testing::kGuest4, testing::kWorld4, port, 80};
    syn(key);
    std::uint32_t number = 0;
    for (const auto& seen : flush())
      if (seen.segment.has(kSyn)) number = seen.segment.seq + 1;
    ack = number;
    guest(kAck | kFin, 0, {}, key);
    flush();
  }
  EXPECT_EQ(stack->tcp().size(), 300U);
  for (int i = 0; i < 120; ++i) after(1s);
  EXPECT_EQ(stack->tcp().size(), 0U);
}

TEST_F(Tcp, HalfClosedConnectionsOfALivingGuestStay) {
  establish();
  guest(kAck | kFin, 0);
  flush();
  for (int i = 0; i < 600; ++i) {
    for (const auto& seen : after(1s))
      if (seen.segment.seq == ack - 1) guest(kAck, 1);
  }
  EXPECT_THAT(events.take_events(), ElementsAre("eof"));
  EXPECT_EQ(stack->tcp().size(), 1U);
}

TEST_F(Tcp, SynFloodIsBounded) {
  StackConfig config = testing::test_config();
  config.tcp.max_half_open = 100;
  restart(config);
  for (std::uint16_t port = 1; port <= 5000; ++port) syn({testing::kGuest4, testing::kWorld4, port, 80});
  EXPECT_EQ(stack->tcp().size(), 100U);
  EXPECT_EQ(stack->counters().count(DropReason::kTableFull), 4900U);
}

TEST_F(Tcp, ThousandsOfConnectionsWithinTheBudget) {
  StackConfig config = testing::test_config();
  config.tcp.max_connections = 2000;
  restart(config);
  events.accept_all = true;
  for (std::uint16_t port = 1; port <= 2500; ++port) {
    const FlowKey key{testing::kGuest4, testing::kWorld4, port, 80};
    syn(key);
    for (const auto& seen : flush()) ack = seen.segment.seq + 1;
    guest(kAck, 0, {}, key);
    flush();
  }
  EXPECT_EQ(stack->tcp().size(), 2000U);
}

TEST_F(Tcp, TimeWaitMakesRoom) {
  StackConfig config = testing::test_config();
  config.tcp.max_connections = 1;
  restart(config);
  establish();
  stack->tcp().shutdown_write(events.last);
  flush();
  syn({testing::kGuest4, testing::kWorld4, 1, 80});
  EXPECT_THAT(events.take_events(), IsEmpty());  // full
  ack += 1;
  guest(kAck | kFin, 0);
  flush();
  events.take_events();
  syn({testing::kGuest4, testing::kWorld4, 1, 80});
  EXPECT_THAT(events.take_events(), ElementsAre("connect"));
}

TEST_F(Tcp, SegmentsOfNoConnectionAreReset) {
  ack = 77;
  guest(kAck, 0, "x");
  guest(kFin, 0, "x");
  guest(kRst, 0);
  guest(kSyn | kFin, 0);
  const auto answers = flush();
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_EQ(answers[0].segment.seq, 77U);
  EXPECT_EQ(answers[1].segment.flags, kRst | kAck);
  EXPECT_EQ(answers[1].segment.ack, told() + 2);
}

TEST_F(Tcp, OpenIsRefusedOrTimesOutOrConnects) {
  ASSERT_TRUE(stack->tcp().open(kKey).has_value());
  EXPECT_EQ(stack->tcp().open(kKey).error().code, ErrorCode::kAlreadyExists);
  auto sent = flush();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].segment.flags, kSyn);
  ack = sent[0].segment.seq + 1;
  ack += 5;
  guest(kRst | kAck, 0);  // not an answer to this SYN
  EXPECT_THAT(events.take_events(), IsEmpty());
  ack -= 5;
  guest(kRst | kAck, 0);
  EXPECT_THAT(events.take_events(), ElementsAre("closed 3"));

  ASSERT_TRUE(stack->tcp().open(kKey).has_value());
  for (int i = 0; i < 60; ++i) after(1s);
  EXPECT_THAT(events.take_events(), ElementsAre("closed 2"));

  events.last = *stack->tcp().open(kKey);
  ack = flush().at(0).segment.seq + 1;
  TcpSegment answer = bare_segment(kIsn, ack, kSyn | kAck);
  answer.window = 1000;
  stack->input(testing::tcp_frame(kKey, answer, {}));
  EXPECT_EQ(flush().size(), 1U);
  EXPECT_THAT(events.take_events(), ElementsAre("established"));
  guest(kAck, 0, "hi");
  flush();
  EXPECT_EQ(events.received, "hi");
}

TEST_F(Tcp, BothSidesOpenAtOnce) {
  events.last = *stack->tcp().open(kKey);
  ack = flush().at(0).segment.seq + 1;
  syn();
  const auto answer = flush();
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_EQ(answer[0].segment.flags, kSyn | kAck);
  guest(kSyn | kAck, -1);
  flush();
  EXPECT_THAT(events.take_events(), ElementsAre("established"));
}

TEST_F(Tcp, OldNamesNameNothing) {
  establish();
  const FlowId old = events.last;
  stack->tcp().abort(old);
  flush();
  syn();
  EXPECT_EQ(events.last.index, old.index);
  stack->tcp().accept(old);
  stack->tcp().consume(old, 0);
  EXPECT_EQ(size_of(stack->tcp().write_room(old)), 0U);
  EXPECT_THAT(flush(), IsEmpty());
}

TEST_F(Tcp, ResetAllWaitsForTheLink) {
  FlowTable table;
  for (std::uint16_t port = 1; port <= 5000; ++port)
    table.push_back({{testing::kGuest4, testing::kWorld4, port, 80}, 10, 20, 30});
  link.room = 100;
  stack->tcp().reset_all(table);
  std::size_t seen = flush().size();
  EXPECT_EQ(seen, 100U);
  while (seen < 10'000) {
    link.room = 1000;
    stack->writable();
    const std::size_t more = flush().size();
    ASSERT_GT(more, 0U);
    seen += more;
  }
  EXPECT_EQ(seen, 10'000U);
  EXPECT_EQ(stack->counters().count(DropReason::kQueueFull), 0U);
}

}  // namespace
}  // namespace drupe::net
