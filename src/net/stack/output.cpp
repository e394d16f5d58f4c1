#include "net/stack/output.h"

namespace drupe::net {
namespace {

constexpr std::size_t kBatch = 32;
constexpr std::size_t kSpareBuffers = 64;
// A spare buffer is kept only while it is small.
constexpr std::size_t kSpareCapacity = 2048;

}  // namespace

std::vector<std::uint8_t> Output::take_buffer() {
  if (spare_.empty()) return {};
  auto buffer = std::move(spare_.back());
  spare_.pop_back();
  buffer.clear();
  return buffer;
}

bool Output::send_ip(const IpPacket& packet, ByteView transport_header, ByteView payload) {
  const std::size_t body = transport_header.size() + payload.size();
  const std::size_t headers = kEthernetHeader + (packet.source.v6 ? kIpv6Header : kIpv4Header);
  auto frame = take_buffer();
  frame.resize(headers + body);
  write_ip_headers(frame.data(), config_.guest_mac, config_.gateway_mac, packet, body);
  std::copy(transport_header.begin(), transport_header.end(), frame.data() + headers);
  std::copy(payload.begin(), payload.end(), frame.data() + headers + transport_header.size());
  return enqueue(frame);
}

bool Output::send_arp(ByteView body) {
  auto frame = take_buffer();
  frame.resize(kEthernetHeader + body.size());
  write_ethernet(frame.data(), config_.guest_mac, config_.gateway_mac, kTypeArp);
  std::copy(body.begin(), body.end(), frame.data() + kEthernetHeader);
  return enqueue(frame);
}

bool Output::enqueue(std::vector<std::uint8_t>& frame) {
  if (!room_for(frame.size())) {
    counters_.drop(DropReason::kQueueFull);
    return false;
  }
  queued_bytes_ += frame.size();
  queue_.push_back(std::move(frame));
  return true;
}

std::size_t Output::send_frames(std::span<const OutFrame> frames) {
  if (!flush()) return 0;
  const std::size_t taken = sink_.send(frames);
  for (std::size_t i = 0; i < taken; ++i) counters_.bytes_out += frames[i].size();
  counters_.frames_out += taken;
  if (taken < frames.size()) blocked_ = true;
  return taken;
}

bool Output::flush() {
  if (blocked_) return false;
  while (!empty()) {
    std::array<OutFrame, kBatch> batch;
    const std::size_t count = std::min(kBatch, queue_.size() - begin_);
    for (std::size_t i = 0; i < count; ++i) batch[i].pieces[0] = queue_[begin_ + i];
    const std::size_t taken = sink_.send(std::span(batch).first(count));
    for (std::size_t i = 0; i < taken; ++i) {
      auto& frame = queue_[begin_ + i];
      counters_.bytes_out += frame.size();
      queued_bytes_ -= frame.size();
      if (spare_.size() < kSpareBuffers && frame.capacity() <= kSpareCapacity)
        spare_.push_back(std::move(frame));
      else
        frame = {};
    }
    counters_.frames_out += taken;
    begin_ += taken;
    drop_sent();
    if (taken < count) {
      blocked_ = true;
      return false;
    }
  }
  return true;
}

// The front is cut off when it is all there is, or half of a long queue: constant cost for each frame.
void Output::drop_sent() {
  if (begin_ != queue_.size() && begin_ < queue_.size() / 2) return;
  queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(begin_));
  begin_ = 0;
}

}  // namespace drupe::net
