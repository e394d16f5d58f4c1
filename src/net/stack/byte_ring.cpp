#include "net/stack/byte_ring.h"

#include <algorithm>
#include <cstring>

#include <sys/mman.h>

namespace drupe::net {

bool ByteRing::allocate() {
  if (memory_ != nullptr) return true;
  void* pages = ::mmap(nullptr, capacity_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return false;
  memory_ = static_cast<std::uint8_t*>(pages);
  front_ = 0;
  return true;
}

void ByteRing::free_memory() {
  if (memory_ != nullptr) ::munmap(memory_, capacity_);
  memory_ = nullptr;
}

void ByteRing::release() {
  free_memory();
  front_ = 0;
}

RingView ByteRing::view(std::size_t offset, std::size_t length) const {
  if (length == 0) return {};
  const std::size_t begin = (front_ + offset) % capacity_;
  const std::size_t first = std::min(length, capacity_ - begin);
  return {ByteView(memory_ + begin, first), ByteView(memory_, length - first)};
}

RingRoom ByteRing::room() {
  if (size_ == capacity_ || !allocate()) return {};
  const std::size_t begin = (front_ + size_) % capacity_;
  const std::size_t length = capacity_ - size_;
  const std::size_t first = std::min(length, capacity_ - begin);
  return {std::span(memory_ + begin, first), std::span(memory_, length - first)};
}

bool ByteRing::write_at(std::size_t offset, ByteView bytes) {
  if (bytes.empty()) return true;
  if (!allocate()) return false;
  const std::size_t begin = (front_ + offset) % capacity_;
  const std::size_t first = std::min(bytes.size(), capacity_ - begin);
  std::memcpy(memory_ + begin, bytes.data(), first);
  if (first < bytes.size()) std::memcpy(memory_, bytes.data() + first, bytes.size() - first);
  return true;
}

void ByteRing::consume(std::size_t bytes) {
  size_ -= bytes;
  front_ += bytes;
  if (front_ >= capacity_) front_ -= capacity_;
}

}  // namespace drupe::net
