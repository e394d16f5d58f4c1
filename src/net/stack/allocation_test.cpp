// The steady state of a connection allocates nothing.
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "net/stack/testing/fake_guest.h"

namespace {
std::size_t allocations = 0;
}  // namespace

// Counts what the whole program allocates.
// NOLINTBEGIN(cppcoreguidelines-no-malloc,cppcoreguidelines-owning-memory)
void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  std::abort();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
// NOLINTEND(cppcoreguidelines-no-malloc,cppcoreguidelines-owning-memory)

namespace drupe::net {
namespace {

// Takes every frame and keeps the numbers that the guest needs.
class Swallow final : public FrameSink {
 public:
  std::size_t send(std::span<const OutFrame> frames) override {
    for (const auto& frame : frames) {
      if (frame.pieces[0][kEthernetHeader + 9] != kProtocolTcp) continue;
      const std::uint8_t* tcp = frame.pieces[0].data() + kEthernetHeader + kIpv4Header;
      next = load32(tcp + 4) + static_cast<std::uint32_t>(frame.pieces[1].size() + frame.pieces[2].size());
    }
    return frames.size();
  }
  std::uint32_t next = 0;
};

class Counting final : public TcpHandler, public UdpHandler {
 public:
  void on_connect(FlowId made, const FlowKey&) override { flow = made; }
  void on_established(FlowId) override {}
  std::size_t on_data(FlowId, ByteView bytes) override { return bytes.size() / 2; }  // the rest is stored
  void on_readable(FlowId id) override { stack->tcp().consume(id, size_of(stack->tcp().readable(id))); }
  void on_eof(FlowId) override {}
  void on_writable(FlowId) override {}
  void on_closed(FlowId, CloseReason) override {}
  void on_datagram(FlowId id, const FlowKey&, ByteView payload, bool) override {
    stack->udp().send(id, payload);
  }
  void on_expired(FlowId) override {}
  Stack* stack = nullptr;
  FlowId flow;
};

TEST(Allocation, NoneForSegmentsAndDatagramsOfOpenFlows) {
  testing::ManualTime time;
  Swallow link;
  Counting handler;
  StackConfig config = testing::test_config();
  config.mtu = 9000;
  Stack stack(config, link, time, handler, handler);
  handler.stack = &stack;
  const FlowKey key{testing::kGuest4, testing::kWorld4, 1000, 80};
  TcpSegment segment = bare_segment(0, 0, tcp_flag::kSyn);
  segment.window = 65535;
  segment.mss = 1460;
  stack.input(testing::tcp_frame(key, segment, {}));
  stack.tcp().accept(handler.flow);
  stack.flush();
  ++link.next;  // the SYN

  const std::string payloads[] = {std::string(100, 'x'), std::string(8000, 'y')};
  const auto datagram = testing::udp_frame(key, "question");
  std::uint32_t at = 1;
  std::size_t counted = 0;
  const auto exchange = [&] {
    for (const auto& payload : payloads) {
      TcpSegment data = bare_segment(at, link.next, tcp_flag::kAck);
      data.window = 65535;
      auto frame = testing::tcp_frame(key, data, payload);
      const std::size_t before = allocations;
      stack.input(frame);
      stack.input(datagram);
      stack.flush();
      if (size_of(stack.tcp().write_room(handler.flow)) > 4000) stack.tcp().commit(handler.flow, 4000);
      stack.flush();
      at += static_cast<std::uint32_t>(payload.size());
      counted += allocations - before;
    }
    time.pass(std::chrono::milliseconds(1));
    stack.advance();
  };
  for (int i = 0; i < 20; ++i) exchange();  // tables and buffers grow once
  counted = 0;
  for (int i = 0; i < 1000; ++i) exchange();
  EXPECT_EQ(counted, 0U);
  EXPECT_GT(stack.counters().frames_out, 5000U);
  EXPECT_EQ(stack.counters().tcp_retransmits, 0U);
}

}  // namespace
}  // namespace drupe::net
