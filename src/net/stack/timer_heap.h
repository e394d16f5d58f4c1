// Deadlines of many connections, of which most are moved back long before they are reached.
#pragma once

#include <cstddef>
#include <vector>

#include "net/stack/config.h"

namespace drupe::net {

/// What a TimerHeap times; a base class. Must be removed from the heap before it goes.
struct Timed {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t heap_index = kNone;
};

/// A binary heap with at most one entry for each Timed. Moving a deadline back costs nothing (the entry stays
/// where it is and comes up too early; the owner then schedules again), so an acknowledgement that re-arms a
/// retransmission timer is free. Allocates only when it grows.
class TimerHeap {
 public:
  /// Makes sure that `item` comes up at `at` or before.
  void schedule(Timed& item, TimePoint at);
  void remove(Timed& item);
  /// max() when empty.
  [[nodiscard]] TimePoint next() const { return entries_.empty() ? TimePoint::max() : entries_[0].at; }
  /// Takes out and returns an item whose entry is due, or nullptr.
  Timed* pop(TimePoint now);

 private:
  struct Entry {
    TimePoint at;
    Timed* item;
  };
  void place(std::size_t index, Entry entry);
  void sift_up(std::size_t index);
  void sift_down(std::size_t index);

  std::vector<Entry> entries_;
};

}  // namespace drupe::net
