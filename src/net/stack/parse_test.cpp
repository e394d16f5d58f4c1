#include <gtest/gtest.h>

#include "net/stack/testing/fake_guest.h"

namespace drupe::net {
namespace {

using testing::Bytes;

std::uint16_t plain_checksum(ByteView bytes) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) sum += std::uint32_t{bytes[i]} << (i % 2 == 0 ? 8 : 0);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

TEST(Checksum, IsThatOfTheDefinitionForEveryLengthAndCut) {
  Bytes bytes;
  for (unsigned i = 0; i < 200; ++i) {
    for (std::size_t cut = 0; cut <= bytes.size(); cut += 1 + bytes.size() / 7) {
      const ByteView all(bytes);
      EXPECT_EQ(InternetChecksum().add(all.first(cut)).add(all.subspan(cut)).finish(), plain_checksum(bytes));
    }
    bytes.push_back(static_cast<std::uint8_t>(i * 151 + 7));
  }
  const Bytes ones(4096, 0xff);
  EXPECT_EQ(InternetChecksum().add(ones).finish(), plain_checksum(ones));
  // The example of RFC 1071, section 3.
  const Bytes example = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
  EXPECT_EQ(InternetChecksum().add(example).finish(), static_cast<std::uint16_t>(~0xddf2U));
}

const FlowKey kKey4{testing::kGuest4, testing::kWorld4, 40000, 80};
const FlowKey kKey6{testing::kGuest6, testing::kWorld6, 40000, 80};

TEST(Ethernet, EveryTruncationIsARunt) {
  const Bytes frame(kEthernetHeader, 1);
  for (std::size_t size = 0; size < frame.size(); ++size)
    EXPECT_EQ(parse_ethernet(ByteView(frame).first(size)).error(), DropReason::kRunt);
  EXPECT_TRUE(parse_ethernet(frame).has_value());
}

TEST(Ip, EveryTruncationIsRefused) {
  for (const auto& key : {kKey4, kKey6}) {
    const Bytes frame = testing::tcp_frame(key, bare_segment(1, 2, tcp_flag::kAck), "hello");
    const ByteView packet = ByteView(frame).subspan(kEthernetHeader);
    for (std::size_t size = 0; size < packet.size(); ++size) {
      const ByteView cut = packet.first(size);
      EXPECT_FALSE(key.guest.v6 ? parse_ipv6(cut).has_value() : parse_ipv4(cut).has_value()) << size;
    }
    EXPECT_TRUE(key.guest.v6 ? parse_ipv6(packet).has_value() : parse_ipv4(packet).has_value());
  }
}

struct HeaderCase {
  const char* name;
  std::size_t at;
  std::uint8_t value;
  std::optional<DropReason> drop;
};

// Changes one byte of a right packet and repairs the header's checksum.
TEST(Ipv4, Table) {
  const HeaderCase cases[] = {
      {"right", 8, 64, std::nullopt},
      {"version", 0, 0x65, DropReason::kBadHeader},
      {"header of 16 bytes", 0, 0x44, DropReason::kBadHeader},
      {"header beyond the packet", 0, 0x4f, DropReason::kBadHeader},
      {"total length below the header", 3, 19, DropReason::kBadHeader},
      {"total length beyond the frame", 2, 1, DropReason::kRunt},
      {"do not fragment", 6, 0x40, std::nullopt},
      {"more fragments", 6, 0x20, DropReason::kFragment},
      {"last fragment", 7, 1, DropReason::kFragment},
  };
  for (const auto& test : cases) {
    Bytes packet = testing::tcp_frame(kKey4, bare_segment(1, 2, tcp_flag::kAck), "");
    packet.erase(packet.begin(), packet.begin() + kEthernetHeader);
    packet[test.at] = test.value;
    store16(packet.data() + 10, 0);
    const std::size_t header = std::min<std::size_t>((packet[0] & 15U) * 4U, packet.size());
    store16(packet.data() + 10, InternetChecksum().add(ByteView(packet).first(header)).finish());
    const auto parsed = parse_ipv4(packet);
    EXPECT_EQ(parsed.has_value(), !test.drop.has_value()) << test.name;
    if (test.drop) {
      EXPECT_EQ(parsed.error(), *test.drop) << test.name;
    }
  }
}

TEST(Ipv4, OptionsAreSkippedAndPaddingIsCutOff) {
  Bytes packet(24 + 3 + 10);
  const Bytes frame = testing::ip_frame({testing::kGuest4, testing::kWorld4, 17, 9, {}}, Bytes(7, 'x'));
  std::copy_n(frame.begin() + kEthernetHeader, 20, packet.begin());
  packet[0] = 0x46;  // one word of options: an unknown one that claims 200 bytes
  packet[20] = 0x99;
  packet[21] = 200;
  store16(packet.data() + 10, 0);
  store16(packet.data() + 10, InternetChecksum().add(ByteView(packet).first(24)).finish());
  const auto parsed = parse_ipv4(packet);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->payload.size(), 3U);
  packet[15] ^= 1;
  EXPECT_EQ(parse_ipv4(packet).error(), DropReason::kBadChecksum);
}

Bytes ipv6_with(std::uint8_t first, const Bytes& extension) {
  Bytes frame = testing::ip_frame({testing::kGuest6, testing::kWorld6, first, 0, {}}, extension);
  frame.erase(frame.begin(), frame.begin() + kEthernetHeader);
  return frame;
}

TEST(Ipv6, ExtensionHeaders) {
  const Bytes hop_by_hop = {6, 0, 5, 2, 0, 0, 1, 0};
  const auto skipped = parse_ipv6(ipv6_with(0, hop_by_hop));
  ASSERT_TRUE(skipped.has_value());
  EXPECT_EQ(skipped->protocol, 6);
  EXPECT_TRUE(skipped->payload.empty());
  EXPECT_EQ(parse_ipv6(ipv6_with(44, hop_by_hop)).error(), DropReason::kFragment);
  EXPECT_EQ(parse_ipv6(ipv6_with(43, hop_by_hop)).error(), DropReason::kBadHeader);
  EXPECT_EQ(parse_ipv6(ipv6_with(0, {44, 0, 1, 4, 0, 0, 0, 0})).error(), DropReason::kFragment);
  EXPECT_EQ(parse_ipv6(ipv6_with(60, {6, 1, 1, 4, 0, 0, 0, 0})).error(), DropReason::kBadHeader);
  EXPECT_EQ(parse_ipv6(ipv6_with(60, {6, 0, 1})).error(), DropReason::kRunt);
  Bytes many;
  for (int i = 0; i < 9; ++i) many.insert(many.end(), {60, 0, 1, 4, 0, 0, 0, 0});
  EXPECT_EQ(parse_ipv6(ipv6_with(60, many)).error(), DropReason::kBadHeader);
}

std::optional<DropReason> tcp_error(const FlowKey& key, const Bytes& transport) {
  IpPacket packet{key.guest, key.remote, kProtocolTcp, 0, transport};
  const auto parsed = parse_tcp(packet);
  return parsed ? std::nullopt : std::optional(parsed.error());
}

// A segment with the given options and a right checksum.
Bytes tcp_with_options(const Bytes& options) {
  Bytes transport(kTcpHeader);
  store16(transport.data(), 1000);
  store16(transport.data() + 2, 80);
  transport[12] = static_cast<std::uint8_t>((kTcpHeader + options.size()) / 4 << 4);
  transport[13] = tcp_flag::kSyn;
  transport.insert(transport.end(), options.begin(), options.end());
  InternetChecksum sum;
  sum.add_pseudo_header(kKey4.guest, kKey4.remote, kProtocolTcp, transport.size());
  store16(transport.data() + 16, sum.add(transport).finish());
  return transport;
}

TEST(TcpHeader, Options) {
  struct Case {
    Bytes options;
    std::optional<std::uint16_t> mss;
    std::optional<std::uint8_t> scale;
  };
  const Case cases[] = {
      {{}, {}, {}},
      {{2, 4, 5, 0xb4}, 1460, {}},
      {{1, 3, 3, 7, 2, 4, 5, 0xb4}, 1460, 7},
      {{3, 3, 200, 0}, {}, 14},                           // too large: as RFC 7323 2.3 says
      {{2, 0, 0, 0}, {}, {}},                             // a length of zero ends the list
      {{2, 1, 0, 0}, {}, {}},                             //
      {{2, 40, 0, 0}, {}, {}},                            // beyond the end
      {{2, 3, 9, 0}, {}, {}},                             // wrong length for its kind
      {{0, 4, 5, 0xb4}, {}, {}},                          // behind the end of the list
      {{1, 1, 1, 2}, {}, {}},                             // cut off
      {{253, 6, 1, 2, 3, 4, 1, 1, 2, 4, 1, 0}, 256, {}},  // unknown, skipped
  };
  for (const auto& test : cases) {
    const Bytes transport = tcp_with_options(test.options);
    const auto parsed = parse_tcp({kKey4.guest, kKey4.remote, kProtocolTcp, 0, transport});
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(parsed->mss, test.mss);
    EXPECT_EQ(parsed->window_scale, test.scale);
    EXPECT_TRUE(parsed->payload.empty());
  }
}

TEST(TcpHeader, HeadersThatContradictThemselves) {
  const Bytes right = tcp_with_options({});
  for (std::size_t size = 0; size < right.size(); ++size)
    EXPECT_EQ(tcp_error(kKey4, Bytes(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(size))),
              DropReason::kRunt);
  for (const int words : {0, 1, 4, 6, 15}) {
    Bytes wrong = right;
    wrong[12] = static_cast<std::uint8_t>(words << 4);
    EXPECT_EQ(tcp_error(kKey4, wrong), DropReason::kBadHeader) << words;
  }
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (i == 12) continue;
    Bytes wrong = right;
    wrong[i] ^= 0x10;
    EXPECT_EQ(tcp_error(kKey4, wrong), DropReason::kBadChecksum) << i;
  }
}

TEST(UdpHeader, Table) {
  for (const auto& key : {kKey4, kKey6}) {
    const Bytes frame = testing::udp_frame(key, "abc");
    const std::size_t headers = kEthernetHeader + (key.guest.v6 ? kIpv6Header : kIpv4Header);
    const Bytes right(frame.begin() + static_cast<std::ptrdiff_t>(headers), frame.end());
    const auto parse = [&](const Bytes& bytes) {
      return parse_udp({key.guest, key.remote, kProtocolUdp, 0, bytes});
    };
    ASSERT_TRUE(parse(right).has_value());
    EXPECT_EQ(as_text(parse(right)->payload), "abc");
    Bytes no_checksum = right;
    store16(no_checksum.data() + 6, 0);
    EXPECT_EQ(parse(no_checksum).has_value(), !key.guest.v6);
    for (std::size_t size = 0; size < kUdpHeader; ++size)
      EXPECT_EQ(parse(Bytes(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(size))).error(),
                DropReason::kRunt);
    for (const int length : {0, 7, 12, 65535}) {
      Bytes wrong = right;
      store16(wrong.data() + 4, static_cast<std::uint16_t>(length));
      EXPECT_EQ(parse(wrong).error(), DropReason::kBadHeader) << length;
    }
    Bytes wrong = right;
    wrong.back() ^= 1;
    EXPECT_EQ(parse(wrong).error(), DropReason::kBadChecksum);
  }
}

TEST(FlowTable, RoundTripAndHostileBytes) {
  const FlowTable table = {{kKey4, 1, 2, 3}, {kKey6, 0xffffffff, 5, 6}};
  const std::string bytes = encode_flow_table(table);
  const auto decoded = decode_flow_table(as_bytes(bytes));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(*decoded, table);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_flow_table(as_bytes(bytes).first(size)).has_value()) << size;
  EXPECT_FALSE(decode_flow_table(as_bytes(bytes + "x")).has_value());
  std::string many = bytes;
  many[6] = many[7] = many[8] = '\xff';  // a count that the bytes cannot hold
  EXPECT_FALSE(decode_flow_table(as_bytes(many)).has_value());
}

TEST(ReceiveBuffer, FirstBytesStay) {
  ReceiveBuffer buffer(64);
  const auto text = [&] {
    std::string all;
    for (const auto piece : buffer.readable()) all.append(as_text(piece));
    return all;
  };
  buffer.insert(2, as_bytes("cd"));
  buffer.insert(6, as_bytes("gh"));
  EXPECT_EQ(text(), "");
  buffer.insert(0, as_bytes("abXXefXXij"));  // fills the holes and nothing else
  EXPECT_EQ(text(), "abcdefghij");
  buffer.insert(0, as_bytes("YYYYYYYYYYkl"));
  EXPECT_EQ(text(), "abcdefghijkl");
  buffer.consume(10);
  buffer.insert(5, as_bytes("ZZZZZZZ"));
  EXPECT_EQ(text(), "kl");
}

TEST(ReceiveBuffer, BoundsRoomAndPieces) {
  ReceiveBuffer buffer(100);
  buffer.insert(90, as_bytes("0123456789abcdef"));
  EXPECT_EQ(buffer.held_end(), 100U);
  for (std::uint64_t place = 1; place < 90; place += 2) buffer.insert(place, as_bytes("x"));
  buffer.insert(0, as_bytes(std::string(100, 'y')));
  ASSERT_EQ(buffer.size(), 100U);
  EXPECT_EQ(as_text(buffer.readable()[0]).substr(0, 4), "yxyx");
  EXPECT_FALSE(buffer.has_pieces());
}

// Against a model that keeps every byte of the stream.
TEST(ReceiveBuffer, BehavesAsTheModelUnderRandomSegments) {
  std::uint32_t seed = 7;
  const auto random = [&](std::uint32_t below) {
    return (seed = seed * 1664525 + 1013904223) / 65536 % below;
  };
  for (int round = 0; round < 200; ++round) {
    ReceiveBuffer buffer(50);
    std::string model(400, '\0'), out;
    for (int step = 0; step < 200 && buffer.next() < 350; ++step) {
      const std::uint64_t place = buffer.taken() + random(60);
      const std::string bytes(1 + random(20), static_cast<char>('a' + random(26)));
      const std::uint64_t limit = buffer.limit();
      buffer.insert(place, as_bytes(bytes));
      for (std::uint64_t at = place; at < std::min(place + bytes.size(), limit); ++at)
        if (model[at] == 0) model[at] = bytes[0];
      const std::size_t count = random(static_cast<std::uint32_t>(buffer.size() + 1));
      const auto view = buffer.readable();
      std::string front(as_text(view[0]));
      front.append(as_text(view[1]));
      out.append(front.substr(0, count));
      buffer.consume(count);
    }
    EXPECT_EQ(out, model.substr(0, out.size()));
  }
}

}  // namespace
}  // namespace drupe::net
