// What is below TCP: whose frames are taken, ARP, ND, ICMP, UDP flows, the link.
#include <sys/socket.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/stack/icmp.h"
#include "net/stack/link.h"
#include "net/stack/testing/fake_guest.h"

namespace drupe::net {
namespace {

using namespace std::chrono_literals;
using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StackTest : public ::testing::Test {
 protected:
  StackTest() { restart(testing::test_config()); }
  void restart(const StackConfig& config) {
    stack = std::make_unique<Stack>(*validated(config), link, time, events, events);
    events.stack = stack.get();
  }
  std::vector<Bytes> answer_to(const Bytes& frame) {
    stack->input(frame);
    stack->flush();
    return link.take();
  }
  // Nothing comes back, and it is counted as `reason`.
  void expect_dropped(const Bytes& frame, DropReason reason, const char* what) {
    const auto before = stack->counters().count(reason);
    EXPECT_THAT(answer_to(frame), IsEmpty()) << what;
    EXPECT_EQ(stack->counters().count(reason), before + 1) << what << ": " << to_string(reason);
  }
  testing::ManualTime time;
  testing::FrameLog link;
  testing::EventLog events;
  std::unique_ptr<Stack> stack;
};

Bytes arp(std::uint16_t operation, const MacAddress& mac, const PacketAddress& sender,
          const PacketAddress& target) {
  Bytes frame(kEthernetHeader + 28);
  write_ethernet(frame.data(), {{255, 255, 255, 255, 255, 255}}, testing::kGuestMac, kTypeArp);
  std::uint8_t* at = frame.data() + kEthernetHeader;
  store16(at, 1);
  store16(at + 2, kTypeIpv4);
  at[4] = 6;
  at[5] = 4;
  store16(at + 6, operation);
  std::copy_n(mac.bytes.begin(), 6, at + 8);
  std::copy_n(sender.bytes.begin(), 4, at + 14);
  std::copy_n(target.bytes.begin(), 4, at + 24);
  return frame;
}

TEST_F(StackTest, ArpAnswersForTheGatewayOnly) {
  const auto answers = answer_to(arp(1, testing::kGuestMac, testing::kGuest4, testing::kGateway4));
  ASSERT_EQ(answers.size(), 1U);
  const std::uint8_t* at = answers[0].data() + kEthernetHeader;
  EXPECT_EQ(load16(at + 6), 2);
  EXPECT_EQ(ByteView(at + 8, 6)[5], testing::kGatewayMac.bytes[5]);
  EXPECT_EQ(PacketAddress::v4_at(at + 14), testing::kGateway4);
  EXPECT_EQ(PacketAddress::v4_at(at + 24), testing::kGuest4);
  const auto other = PacketAddress::v4(10, 0, 2, 99);
  expect_dropped(arp(1, testing::kGuestMac, testing::kGuest4, other), DropReason::kIgnored,
                 "another neighbour");
  expect_dropped(arp(1, testing::kGuestMac, {}, testing::kGuest4), DropReason::kIgnored,
                 "probe for its own address");
  expect_dropped(arp(1, testing::kGatewayMac, testing::kGuest4, testing::kGateway4), DropReason::kForgedMac,
                 "MAC");
  expect_dropped(arp(2, testing::kGuestMac, testing::kGateway4, testing::kGuest4), DropReason::kForgedAddress,
                 "claims the gateway");
  Bytes strange = arp(1, testing::kGuestMac, testing::kGuest4, testing::kGateway4);
  strange[kEthernetHeader + 4] = 8;
  expect_dropped(strange, DropReason::kBadHeader, "address length");
  strange.resize(kEthernetHeader + 27);
  expect_dropped(strange, DropReason::kRunt, "cut off");
  auto config = testing::test_config();
  config.answer_for_neighbours = true;
  restart(config);
  EXPECT_EQ(answer_to(arp(1, testing::kGuestMac, testing::kGuest4, other)).size(), 1U);
  EXPECT_THAT(answer_to(arp(1, testing::kGuestMac, {}, testing::kGuest4)), IsEmpty());
}

Bytes solicitation(const PacketAddress& source, const PacketAddress& target, const MacAddress& mac,
                   std::uint8_t type = 135, std::uint8_t hop_limit = 255) {
  Bytes message(32);
  message[0] = type;
  std::copy_n(target.bytes.begin(), 16, message.begin() + 8);
  message[24] = 1;
  message[25] = 1;
  std::copy_n(mac.bytes.begin(), 6, message.begin() + 26);
  PacketAddress group = target;
  group.bytes[0] = 0xff;
  group.bytes[1] = 2;
  set_icmpv6_checksum(source, group, message);
  return testing::ip_frame({source, group, kProtocolIcmpv6, hop_limit, {}}, message);
}

TEST_F(StackTest, NeighbourDiscovery) {
  const auto own = link_local_of(testing::kGuestMac);
  for (const auto& source : {testing::kGuest6, own}) {
    for (const auto& target : {testing::kGateway6, link_local_of(testing::kGatewayMac)}) {
      const auto answers = answer_to(solicitation(source, target, testing::kGuestMac));
      ASSERT_EQ(answers.size(), 1U);
      const auto packet = testing::seen_packet(answers[0]);
      ASSERT_TRUE(packet && icmpv6_checksum_right(*packet));
      EXPECT_EQ(packet->payload[0], 136);
      EXPECT_EQ(packet->hop_limit, 255);
      EXPECT_EQ(packet->destination, source);
    }
  }
  expect_dropped(solicitation(testing::kGuest6, testing::kWorld6, testing::kGuestMac), DropReason::kIgnored,
                 "not here");
  expect_dropped(solicitation(testing::kGuest6, testing::kGateway6, testing::kGatewayMac),
                 DropReason::kForgedMac, "option");
  expect_dropped(solicitation(testing::kWorld6, testing::kGateway6, testing::kGuestMac),
                 DropReason::kForgedAddress, "source");
  expect_dropped(solicitation(testing::kGuest6, testing::kGateway6, testing::kGuestMac, 136),
                 DropReason::kForgedAddress, "claims the gateway");
  expect_dropped(solicitation(testing::kGuest6, testing::kGateway6, testing::kGuestMac, 134),
                 DropReason::kForgedAddress, "router advertisement");
  expect_dropped(solicitation(testing::kGuest6, testing::kGateway6, testing::kGuestMac, 135, 64),
                 DropReason::kBadHeader, "from afar");
  expect_dropped(solicitation(testing::kGuest6, testing::kGateway6, testing::kGuestMac, 133),
                 DropReason::kIgnored, "router solicitation");
}

TEST_F(StackTest, FramesThatAreNotTheGuestsAreDropped) {
  const FlowKey key{testing::kGuest4, testing::kWorld4, 1000, 53};
  const Bytes right = testing::udp_frame(key, "x");
  Bytes frame = right;
  frame[11] ^= 1;
  expect_dropped(frame, DropReason::kForgedMac, "source MAC");
  frame = right;
  frame[5] ^= 1;
  expect_dropped(frame, DropReason::kNotForUs, "destination MAC");
  frame = right;
  store16(frame.data() + 12, 0x8035);
  expect_dropped(frame, DropReason::kUnknownType, "RARP");
  expect_dropped(Bytes(13, 2), DropReason::kRunt, "runt");
  expect_dropped({}, DropReason::kRunt, "nothing");
  frame.resize(1515);
  expect_dropped(frame, DropReason::kGiant, "giant");
  FlowKey forged = key;
  forged.guest = testing::kWorld4;
  expect_dropped(testing::udp_frame(forged, "x"), DropReason::kForgedAddress, "IPv4 source");
  forged = {testing::kWorld6, testing::kGateway6, 1000, 53};
  expect_dropped(testing::udp_frame(forged, "x"), DropReason::kForgedAddress, "IPv6 source");
  forged.guest = link_local_of(testing::kGuestMac);
  expect_dropped(testing::udp_frame(forged, "x"), DropReason::kForgedAddress,
                 "link-local is for ICMPv6 only");
  forged = {PacketAddress{}, PacketAddress::v4(255, 255, 255, 255), 68, 67};
  expect_dropped(testing::udp_frame(forged, "x"), DropReason::kForgedAddress, "DHCP");
  EXPECT_THAT(events.take_events(), IsEmpty());
  for (const auto& bad : {PacketAddress::v4(255, 255, 255, 255), PacketAddress::v4(224, 0, 0, 251),
                          PacketAddress::v4(0, 1, 2, 3), PacketAddress::v4(240, 0, 0, 1), testing::kGuest4}) {
    FlowKey to = key;
    to.remote = bad;
    expect_dropped(testing::udp_frame(to, "x"), DropReason::kBadDestination, to_string(bad).c_str());
  }
  EXPECT_THAT(answer_to(right), IsEmpty());
  EXPECT_THAT(events.take_events(), ElementsAre("first datagram x"));
}

Bytes ping(const PacketAddress& from, const PacketAddress& to, std::size_t size) {
  Bytes message(8 + size, 'p');
  message[0] = from.v6 ? 128 : 8;
  message[1] = 0;
  store16(message.data() + 2, 0);
  if (from.v6)
    set_icmpv6_checksum(from, to, message);
  else
    store16(message.data() + 2, InternetChecksum().add(message).finish());
  return testing::ip_frame({from, to, from.v6 ? kProtocolIcmpv6 : kProtocolIcmp, 0, {}}, message);
}

TEST_F(StackTest, EchoIsAnsweredByTheGatewayAndProhibitedElsewhere) {
  struct Case {
    PacketAddress from, to;
    std::uint8_t type;
  };
  const Case cases[] = {{testing::kGuest4, testing::kGateway4, 0},
                        {testing::kGuest4, testing::kWorld4, 3},
                        {testing::kGuest6, testing::kGateway6, 129},
                        {link_local_of(testing::kGuestMac), link_local_of(testing::kGatewayMac), 129},
                        {testing::kGuest6, testing::kWorld6, 1}};
  for (const auto& test : cases) {
    for (const std::size_t size : {0U, 56U, 1400U}) {
      const auto answers = answer_to(ping(test.from, test.to, size));
      ASSERT_EQ(answers.size(), 1U) << to_string(test.to);
      const auto packet = testing::seen_packet(answers[0]);
      ASSERT_TRUE(packet.has_value());
      EXPECT_EQ(packet->payload[0], test.type);
      EXPECT_EQ(packet->destination, test.from);
      if (test.from.v6)
        EXPECT_TRUE(icmpv6_checksum_right(*packet));
      else
        EXPECT_EQ(InternetChecksum().add(packet->payload).finish(), 0);
    }
  }
  Bytes wrong = ping(testing::kGuest4, testing::kGateway4, 10);
  wrong.back() ^= 1;
  expect_dropped(wrong, DropReason::kBadChecksum, "checksum");
}

TEST_F(StackTest, UnknownProtocolsFailAtOnce) {
  for (const bool v6 : {false, true}) {
    const IpPacket packet{
        v6 ? testing::kGuest6 : testing::kGuest4, v6 ? testing::kWorld6 : testing::kWorld4, 132, 0, {}};
    const auto answers = answer_to(testing::ip_frame(packet, Bytes(40, 1)));
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(testing::seen_packet(answers[0])->payload[0], v6 ? 4 : 3);
  }
}

TEST_F(StackTest, UdpFlowsExpireAndMakeRoom) {
  auto config = testing::test_config();
  config.udp.max_flows = 3;
  restart(config);
  const auto datagram = [&](std::uint16_t port) {
    stack->input(testing::udp_frame({testing::kGuest6, testing::kWorld6, port, 53}, std::to_string(port)));
    time.pass(1s);
  };
  datagram(1);
  const FlowId first = events.last;
  datagram(2);
  datagram(3);
  datagram(1);
  EXPECT_TRUE(stack->udp().send(first, as_bytes("answer")));
  datagram(4);  // 2 was idle longest
  EXPECT_THAT(events.take_events(), ElementsAre("first datagram 1", "first datagram 2", "first datagram 3",
                                                "datagram 1", "expired", "first datagram 4"));
  EXPECT_EQ(stack->udp().size(), 3U);
  stack->flush();
  const auto frames = link.take();
  ASSERT_EQ(frames.size(), 1U);
  const auto answer = parse_udp(*testing::seen_packet(frames[0]));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(as_text(answer->payload), "answer");
  EXPECT_FALSE(stack->udp().send(first, Bytes(1500)));  // never fragmented
  time.pass(100s);
  stack->advance();
  EXPECT_EQ(stack->udp().size(), 0U);
  EXPECT_FALSE(stack->udp().send(first, as_bytes("late")));
}

TEST_F(StackTest, QueueIsBounded) {
  stack->input(testing::udp_frame({testing::kGuest4, testing::kWorld4, 1, 53}, "x"));
  link.room = 0;
  std::size_t taken = 0;
  while (stack->udp().send(events.last, Bytes(1400))) ASSERT_LT(++taken, 1000U);
  EXPECT_TRUE(stack->congested());
  EXPECT_GT(taken, 100U);
  stack->flush();
  link.room = 1000;
  stack->writable();
  EXPECT_EQ(link.take().size(), taken);
  EXPECT_FALSE(stack->congested());
}

TEST_F(StackTest, ConfigurationIsChecked) {
  EXPECT_TRUE(validated(testing::test_config()).has_value());
  auto config = testing::test_config();
  config.mtu = 1279;
  EXPECT_FALSE(validated(config).has_value());
  config = testing::test_config();
  config.gateway_v6.reset();
  EXPECT_FALSE(validated(config).has_value());
  config = testing::test_config();
  config.guest_mac = config.gateway_mac;
  EXPECT_FALSE(validated(config).has_value());
  config = testing::test_config();
  config.tcp.smallest_buffer = 2 * config.tcp.buffer_size;
  EXPECT_FALSE(validated(config).has_value());
}

TEST(Link, CarriesFramesInBatchesAndSaysWhenItIsFull) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  auto link = Link::adopt(UniqueFd(ends[0]), 1500);
  ASSERT_TRUE(link.has_value());
  UniqueFd guest(ends[1]);
  const Bytes head(14, 1), body(1000, 2), rest(500, 3);
  std::vector<OutFrame> frames(8, OutFrame{{head, body, rest}});
  std::size_t sent = 0;
  for (std::size_t taken = frames.size(); taken == frames.size(); sent += taken) {
    taken = link->send(frames);
    ASSERT_LT(sent, 100'000U);
  }
  EXPECT_GT(sent, 10U);
  Bytes got(2000);
  std::size_t received = 0;
  while (::recv(guest.get(), got.data(), got.size(), 0) == 1514) ++received;
  EXPECT_EQ(received, sent);

  for (int i = 0; i < 100; ++i)
    ASSERT_GT(::send(guest.get(), got.data(), 60 + static_cast<std::size_t>(i), 0), 0);
  got.assign(5000, 0);
  ASSERT_EQ(::send(guest.get(), got.data(), got.size(), 0), 5000);
  std::vector<std::size_t> sizes;
  for (;;) {
    const auto count = link->receive([&](ByteView frame) { sizes.push_back(frame.size()); });
    ASSERT_TRUE(count.has_value());
    if (*count == 0) break;
  }
  ASSERT_EQ(sizes.size(), 101U);
  EXPECT_EQ(sizes[7], 67U);
  EXPECT_GT(sizes[100], 1514U);  // a giant shows as one
  guest.reset();
  EXPECT_EQ(link->send(frames), frames.size());
  EXPECT_TRUE(link->broken());
}

}  // namespace
}  // namespace drupe::net
