// Bytes of one direction of a connection, in order, in one fixed piece of memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace drupe::net {

/// A run of bytes of a ring: in one piece, or in two where it wraps.
using RingView = std::array<ByteView, 2>;
using RingRoom = std::array<std::span<std::uint8_t>, 2>;
[[nodiscard]] inline std::size_t size_of(const RingView& view) {
  return view[0].size() + view[1].size();
}
[[nodiscard]] inline std::size_t size_of(const RingRoom& room) {
  return room[0].size() + room[1].size();
}

/// Owns its memory, which is taken at the first write and given back by release(). Large rings are mapped
/// pages, so that what was never written costs nothing and release() returns it to the system at once.
class ByteRing {
 public:
  explicit ByteRing(std::size_t capacity) : capacity_(capacity) {}
  ByteRing(const ByteRing&) = delete;
  ByteRing& operator=(const ByteRing&) = delete;
  ~ByteRing() { free_memory(); }

  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool allocated() const { return memory_ != nullptr; }
  /// `length` bytes from `offset` behind the front. Precondition: they are within size().
  [[nodiscard]] RingView view(std::size_t offset, std::size_t length) const;
  /// Free room behind the last byte; fill it and then call grow(). Empty when memory cannot be had.
  [[nodiscard]] RingRoom room();
  /// The next `bytes` of room() are written. Precondition: within capacity().
  void grow(std::size_t bytes) { size_ += bytes; }
  /// Writes behind the front, also beyond size(), which stays as it is. False without memory.
  /// Precondition: within capacity().
  bool write_at(std::size_t offset, ByteView bytes);
  /// Drops bytes from the front. Precondition: bytes <= size().
  void consume(std::size_t bytes);
  /// The next write begins at the start of the memory, so that short exchanges touch few pages. Only for an
  /// empty ring with nothing written beyond size().
  void rewind() { front_ = 0; }
  /// Gives the memory back. Only for an empty ring with nothing written beyond size().
  void release();

 private:
  bool allocate();
  void free_memory();

  std::size_t capacity_;
  std::size_t front_ = 0, size_ = 0;
  std::uint8_t* memory_ = nullptr;
};

}  // namespace drupe::net
