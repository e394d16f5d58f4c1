#include "net/stack/receive_buffer.h"

#include <algorithm>

namespace drupe::net {

void ReceiveBuffer::insert(std::uint64_t place, ByteView bytes) {
  const std::uint64_t begin = std::max(place, next());
  const std::uint64_t end = std::min(place + bytes.size(), limit());
  if (begin >= end) return;
  if (pieces_ == 0 && begin == next()) {
    if (store(begin, end, place, bytes)) ring_.grow(end - begin);
    return;
  }
  // In order, the new bytes end at a piece or before one: no piece is added, whatever their number.
  const bool in_order = begin == next();
  if (!in_order && pieces_ == kMaxPieces) {
    const bool touches = std::any_of(piece_.begin(), piece_.end(), [&](const Piece& piece) {
      return begin <= piece.end && end >= piece.begin;
    });
    if (!touches) return;
  }
  if (!fill_holes(begin, end, place, bytes)) return;
  add_piece({begin, end});
}

bool ReceiveBuffer::store(std::uint64_t begin, std::uint64_t end, std::uint64_t place, ByteView bytes) {
  return ring_.write_at(begin - taken_, bytes.subspan(begin - place, end - begin));
}

bool ReceiveBuffer::fill_holes(std::uint64_t begin, std::uint64_t end, std::uint64_t place, ByteView bytes) {
  std::uint64_t at = begin;
  for (std::size_t i = 0; i < pieces_ && at < end; ++i) {
    const Piece& piece = piece_[i];
    if (piece.end <= at) continue;
    if (piece.begin >= end) break;
    if (at < piece.begin && !store(at, piece.begin, place, bytes)) return false;
    at = piece.end;
  }
  return at >= end || store(at, end, place, bytes);
}

// Joins `piece` with every piece that it touches, and takes a front piece without a hole before it into the
// ring. kMaxPieces is never exceeded: insert() lets a full table only be joined, or extended at its front.
void ReceiveBuffer::add_piece(Piece piece) {
  std::size_t kept = 0;
  std::array<Piece, kMaxPieces + 1> joined{};
  bool placed = false;
  for (std::size_t i = 0; i < pieces_; ++i) {
    const Piece& old = piece_[i];
    if (old.end < piece.begin) {
      joined[kept++] = old;
    } else if (old.begin > piece.end) {
      if (!placed) joined[kept++] = piece;
      placed = true;
      joined[kept++] = old;
    } else {
      piece = {std::min(piece.begin, old.begin), std::max(piece.end, old.end)};
    }
  }
  if (!placed) joined[kept++] = piece;
  std::size_t first = 0;
  if (joined[0].begin == next()) {
    ring_.grow(joined[0].end - joined[0].begin);
    first = 1;
  }
  std::copy(joined.begin() + static_cast<std::ptrdiff_t>(first),
            joined.begin() + static_cast<std::ptrdiff_t>(kept), piece_.begin());
  pieces_ = kept - first;
}

void ReceiveBuffer::consume(std::size_t bytes) {
  ring_.consume(bytes);
  taken_ += bytes;
  if (ring_.size() == 0 && pieces_ == 0) ring_.rewind();
}

void ReceiveBuffer::trim() {
  if (ring_.size() == 0 && pieces_ == 0) ring_.release();
}

}  // namespace drupe::net
