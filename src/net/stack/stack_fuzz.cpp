// Any frames, in any order, with time passing between: no crash, no frame above
// the MTU, and a table of connections that can be read back. The whole way from Ethernet to TCP.
#include <cstdlib>

#include "net/stack/icmp.h"
#include "net/stack/testing/fake_guest.h"

namespace {

using namespace drupe;
using namespace drupe::net;
using drupe::net::testing::Bytes;

// Makes the checksums right, which a fuzzer would not find: of IPv4, and of TCP, UDP or ICMP behind it.
void mend(Bytes& frame) {
  if (frame.size() < kEthernetHeader + kIpv4Header || load16(frame.data() + 12) != kTypeIpv4) return;
  std::uint8_t* ip = frame.data() + kEthernetHeader;
  const std::size_t header = (ip[0] & 15U) * 4U, total = load16(ip + 2);
  if (header < kIpv4Header || total < header || total > frame.size() - kEthernetHeader) return;
  store16(ip + 10, 0);
  store16(ip + 10, InternetChecksum().add(ByteView(ip, header)).finish());
  const std::size_t at = ip[9] == kProtocolTcp ? 16 : ip[9] == kProtocolUdp ? 6 : 2;
  if (total - header < at + 2) return;
  store16(ip + header + at, 0);
  InternetChecksum sum;
  if (ip[9] != kProtocolIcmp)
    sum.add_pseudo_header(PacketAddress::v4_at(ip + 12), PacketAddress::v4_at(ip + 16), ip[9],
                          total - header);
  store16(ip + header + at, sum.add(ByteView(ip + header, total - header)).finish());
}

class Reader {
 public:
  explicit Reader(ByteView bytes) : rest_(bytes) {}
  [[nodiscard]] bool done() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const std::uint8_t value = rest_[0];
    rest_ = rest_.subspan(1);
    return value;
  }
  ByteView take(std::size_t count) {
    const ByteView taken = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

 private:
  ByteView rest_;
};

// Answers itself.
struct Others final : IcmpHandler {
  Stack* stack = nullptr;
  bool on_echo(const PacketAddress& remote, bool reply, ByteView body) override {
    if (remote.bytes[3] % 2 == 0) return false;
    stack->send_echo(remote, !reply, body);
    stack->refuse_echo(remote, body);
    return true;
  }
  void on_port_refused(const FlowKey& key) override {
    if (const auto flow = stack->udp().find(key)) stack->udp().close(*flow);
  }
};

struct World {
  testing::ManualTime time;
  testing::FrameLog link;
  testing::EventLog events;
  Stack stack;
  // The acknowledgement that an honest guest would send, so that connections get beyond the handshake.
  std::uint32_t ack = 0;

  static StackConfig config() {
    StackConfig config = testing::test_config();
    config.tcp.max_connections = 8;
    config.udp.max_flows = 4;
    return config;
  }
  Others others;
  World() : stack(config(), link, time, events, events) {
    events.stack = others.stack = &stack;
    stack.use_icmp(&others);
  }

  void flush() {
    stack.flush();
    for (const auto& frame : link.take()) {
      if (frame.size() > kEthernetHeader + stack.config().mtu) std::abort();
      const auto seen = testing::seen_segment(frame);
      if (seen && seen->key.guest_port == 40000) ack = seen->segment.seq + seen->segment.length();
    }
  }
};

FlowKey key() {
  FlowKey made;
  made.guest_port = 40000;
  made.remote_port = 443;
  return made;
}

void segment(World& world, Reader& reader) {
  FlowKey flow = key();
  flow.guest = testing::kGuest4;
  flow.remote = testing::kWorld4;
  TcpSegment made = bare_segment(
      1000U + reader.byte(), world.ack + static_cast<std::uint32_t>(static_cast<std::int8_t>(reader.byte())),
      reader.byte());
  made.window = static_cast<std::uint16_t>(reader.byte() << 8);
  if (made.has(tcp_flag::kSyn)) made.window_scale = static_cast<std::uint8_t>(reader.byte() % 15);
  const ByteView payload = reader.take(reader.byte());
  world.stack.input(testing::tcp_frame(flow, made, as_text(payload)));
}

void user(World& world, Reader& reader) {
  auto& tcp = world.stack.tcp();
  const FlowId flow = world.events.last;
  switch (reader.byte() % 9) {
    case 0:
      return tcp.accept(flow);
    case 1:
      return tcp.refuse(flow);
    case 2:
      return tcp.unreachable(flow, Unreachable::kHost);
    case 3:
      return tcp.shutdown_write(flow);
    case 4:
      return tcp.abort(flow);
    case 5: {
      const std::size_t count =
          std::min<std::size_t>(size_of(tcp.write_room(flow)), std::size_t{reader.byte()} * 64U);
      return tcp.commit(flow, count);
    }
    case 6:
      return world.events.read(flow);
    case 7: {
      FlowKey made = key();
      made.guest = testing::kGuest4;
      made.remote = testing::kWorld4;
      if (const auto opened = tcp.open(made)) world.events.last = *opened;
      return;
    }
    default: {
      const auto table = decode_flow_table(as_bytes(encode_flow_table(tcp.flows())));
      if (!table) std::abort();
      std::vector<FlowKey> keys;
      for (const FlowRecord& record : *table) keys.push_back(record.key);
      if (reader.byte() % 2 == 0) return tcp.reset_all(std::move(keys));
      return tcp.reset_all(*table);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  World world;
  Reader reader(ByteView(data, size));
  while (!reader.done()) {
    switch (reader.byte() % 8) {
      case 0: {
        Bytes frame(kEthernetHeader);
        write_ethernet(frame.data(), testing::kGatewayMac, testing::kGuestMac, kTypeIpv4);
        const ByteView rest = reader.take(std::size_t{reader.byte()} * 2);
        frame.insert(frame.end(), rest.begin(), rest.end());
        if (frame.size() > 20 && frame[14] % 3 == 0)
          store16(frame.data() + 12, frame[14] % 2 == 0 ? kTypeIpv6 : kTypeArp);
        mend(frame);
        world.stack.input(frame);
        break;
      }
      case 1:
        world.stack.input(reader.take(reader.byte()));
        break;
      case 2:
        user(world, reader);
        break;
      case 3:
        world.flush();
        break;
      case 4:
        world.time.pass(std::chrono::milliseconds(std::size_t{reader.byte()} * 40));
        world.stack.advance();
        break;
      case 5:
        world.events.appetite = std::size_t{reader.byte()} * 16;
        world.link.room = reader.byte();
        world.stack.writable();
        break;
      default:
        segment(world, reader);
        break;
    }
  }
  world.flush();
  return 0;
}
