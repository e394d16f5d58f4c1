// A guest made of frames: for tests, with a clock that they move.
#pragma once

#include <string>
#include <vector>

#include "net/stack/checksum.h"
#include "net/stack/stack.h"

namespace drupe::net::testing {

class ManualTime final : public TimeSource {
 public:
  TimePoint now() override { return now_; }
  void pass(std::chrono::nanoseconds time) { now_ += time; }

 private:
  TimePoint now_{std::chrono::hours(1)};
};

/// Keeps frames until a test looks at them. Takes `room` frames more, then it is full.
class FrameLog final : public FrameSink {
 public:
  std::size_t send(std::span<const OutFrame> frames) override {
    std::size_t taken = 0;
    for (const auto& frame : frames) {
      if (room == 0) break;
      --room;
      std::vector<std::uint8_t> bytes;
      for (const auto piece : frame.pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
      frames_.push_back(std::move(bytes));
      ++taken;
    }
    return taken;
  }
  std::vector<std::vector<std::uint8_t>> take() { return std::exchange(frames_, {}); }
  std::size_t room = static_cast<std::size_t>(-1);

 private:
  std::vector<std::vector<std::uint8_t>> frames_;
};

/// Notes what happens, takes up to `appetite` bytes.
class EventLog final : public TcpHandler, public UdpHandler {
 public:
  void on_connect(FlowId flow, const FlowKey& key) override {
    last = flow;
    last_key = key;
    events.emplace_back("connect");
    if (stack != nullptr && accept_all) stack->tcp().accept(flow);
  }
  void on_established(FlowId) override { events.emplace_back("established"); }
  std::size_t on_data(FlowId, ByteView bytes) override {
    const std::size_t taken = std::min(bytes.size(), appetite);
    received.append(as_text(bytes.first(taken)));
    appetite -= taken;
    return taken;
  }
  void on_readable(FlowId flow) override { read(flow); }
  void on_eof(FlowId) override { events.emplace_back("eof"); }
  void on_writable(FlowId) override { events.emplace_back("writable"); }
  void on_closed(FlowId, CloseReason reason) override {
    events.push_back("closed " + std::to_string(static_cast<int>(reason)));
  }
  void on_datagram(FlowId flow, const FlowKey& key, ByteView payload, bool first) override {
    last = flow;
    last_key = key;
    events.push_back((first ? "first datagram " : "datagram ") + std::string(as_text(payload)));
  }
  void on_expired(FlowId) override { events.emplace_back("expired"); }

  void read(FlowId flow) {
    const auto view = stack->tcp().readable(flow);
    std::size_t taken = 0;
    for (const auto piece : view) {
      const std::size_t part = std::min(piece.size(), appetite);
      received.append(as_text(piece.first(part)));
      appetite -= part;
      taken += part;
    }
    if (taken > 0) stack->tcp().consume(flow, taken);
  }
  std::vector<std::string> take_events() { return std::exchange(events, {}); }

  Stack* stack = nullptr;
  bool accept_all = false;
  std::size_t appetite = static_cast<std::size_t>(-1);
  std::string received;
  std::vector<std::string> events;
  FlowId last;
  FlowKey last_key;
};

inline const MacAddress kGuestMac{{2, 0, 0, 0, 0, 1}};
inline const MacAddress kGatewayMac{{2, 0, 0, 0, 0, 2}};
inline const PacketAddress kGuest4 = PacketAddress::v4(10, 0, 2, 15);
inline const PacketAddress kGateway4 = PacketAddress::v4(10, 0, 2, 2);
inline const PacketAddress kWorld4 = PacketAddress::v4(192, 0, 2, 80);
inline const PacketAddress kGuest6{{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x15}, true};
inline const PacketAddress kGateway6{{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}, true};
inline const PacketAddress kWorld6{{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80}, true};

[[nodiscard]] inline StackConfig test_config() {
  StackConfig config;
  config.guest_mac = kGuestMac;
  config.gateway_mac = kGatewayMac;
  config.guest_v4 = kGuest4;
  config.gateway_v4 = kGateway4;
  config.guest_v6 = kGuest6;
  config.gateway_v6 = kGateway6;
  config.mtu = 1500;
  config.secret = 42;
  return config;
}

using Bytes = std::vector<std::uint8_t>;

[[nodiscard]] inline Bytes ip_frame(const IpPacket& packet, ByteView transport) {
  Bytes frame(kEthernetHeader + kIpv6Header + transport.size());
  const std::size_t headers =
      write_ip_headers(frame.data(), kGatewayMac, kGuestMac, packet, transport.size());
  std::copy(transport.begin(), transport.end(), frame.begin() + static_cast<std::ptrdiff_t>(headers));
  frame.resize(headers + transport.size());
  return frame;
}

[[nodiscard]] inline Bytes tcp_frame(const FlowKey& key, TcpSegment segment, std::string_view payload) {
  segment.source_port = key.guest_port;
  segment.destination_port = key.remote_port;
  const IpPacket packet{key.guest, key.remote, kProtocolTcp, 0, {}};
  Bytes transport(kMaxTcpHeader + payload.size());
  const std::size_t header = write_tcp(transport.data(), packet, segment, as_bytes(payload), {});
  std::copy(payload.begin(), payload.end(), transport.begin() + static_cast<std::ptrdiff_t>(header));
  transport.resize(header + payload.size());
  return ip_frame(packet, transport);
}

[[nodiscard]] inline Bytes udp_frame(const FlowKey& key, std::string_view payload) {
  const IpPacket packet{key.guest, key.remote, kProtocolUdp, 0, {}};
  Bytes transport(kUdpHeader + payload.size());
  write_udp(transport.data(), packet, key.guest_port, key.remote_port, as_bytes(payload));
  std::copy(payload.begin(), payload.end(), transport.begin() + kUdpHeader);
  return ip_frame(packet, transport);
}

/// A frame of the stack, taken apart; checksums are checked on the way.
struct SeenSegment {
  FlowKey key;
  TcpSegment segment;
  std::string payload;
};
[[nodiscard]] inline std::optional<IpPacket> seen_packet(ByteView frame) {
  const auto ethernet = parse_ethernet(frame);
  if (!ethernet || ethernet->destination != kGuestMac || ethernet->source != kGatewayMac) return std::nullopt;
  const auto packet =
      ethernet->type == kTypeIpv6 ? parse_ipv6(ethernet->payload) : parse_ipv4(ethernet->payload);
  if (!packet) return std::nullopt;
  return *packet;
}
[[nodiscard]] inline std::optional<SeenSegment> seen_segment(ByteView frame) {
  const auto packet = seen_packet(frame);
  if (!packet || packet->protocol != kProtocolTcp) return std::nullopt;
  const auto segment = parse_tcp(*packet);
  if (!segment) return std::nullopt;
  return SeenSegment{{packet->destination, packet->source, segment->destination_port, segment->source_port},
                     *segment,
                     std::string(as_text(segment->payload))};
}

}  // namespace drupe::net::testing
