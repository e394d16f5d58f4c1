// Puts the guest's bytes in order. The first bytes that came for a place are the ones that stay.
#pragma once

#include <array>
#include <cstdint>

#include "net/stack/byte_ring.h"

namespace drupe::net {

/// Places are counted from the first byte of the stream. Bytes from taken() to next() are in order and wait
/// for the reader; beyond next() there may be pieces with holes before them.
///
/// Invariant: a byte that insert() has stored is never changed, whatever later segments claim.
class ReceiveBuffer {
 public:
  /// Pieces beyond a hole that are remembered; a segment that would make more is not stored.
  static constexpr std::size_t kMaxPieces = 32;

  explicit ReceiveBuffer(std::size_t capacity) : ring_(capacity) {}

  [[nodiscard]] std::uint64_t taken() const { return taken_; }
  [[nodiscard]] std::uint64_t next() const { return taken_ + ring_.size(); }
  /// First place for which there is no room.
  [[nodiscard]] std::uint64_t limit() const { return taken_ + ring_.capacity(); }
  /// End of the last piece that is held, in order or not.
  [[nodiscard]] std::uint64_t held_end() const { return pieces_ == 0 ? next() : piece_[pieces_ - 1].end; }
  [[nodiscard]] bool has_pieces() const { return pieces_ > 0; }
  [[nodiscard]] std::size_t capacity() const { return ring_.capacity(); }
  [[nodiscard]] bool allocated() const { return ring_.allocated(); }

  /// Stores what of `bytes` at `place` is neither held already nor beyond limit().
  void insert(std::uint64_t place, ByteView bytes);
  /// Bytes at next() that the reader took without their being stored. Precondition: nothing waits and there
  /// are no pieces.
  void skip(std::size_t bytes) { taken_ += bytes; }
  /// Everything in order.
  [[nodiscard]] RingView readable() const { return ring_.view(0, ring_.size()); }
  [[nodiscard]] std::size_t size() const { return ring_.size(); }
  /// Precondition: bytes <= size().
  void consume(std::size_t bytes);
  /// Gives memory back when nothing is held.
  void trim();

 private:
  struct Piece {
    std::uint64_t begin, end;
  };
  bool store(std::uint64_t begin, std::uint64_t end, std::uint64_t place, ByteView bytes);
  bool fill_holes(std::uint64_t begin, std::uint64_t end, std::uint64_t place, ByteView bytes);
  void add_piece(Piece piece);

  ByteRing ring_;
  std::uint64_t taken_ = 0;
  // Sorted, apart from each other, all beyond next().
  std::array<Piece, kMaxPieces> piece_{};
  std::size_t pieces_ = 0;
};

}  // namespace drupe::net
