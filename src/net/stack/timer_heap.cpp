#include "net/stack/timer_heap.h"

namespace drupe::net {

void TimerHeap::place(std::size_t index, Entry entry) {
  entries_[index] = entry;
  entry.item->heap_index = index;
}

void TimerHeap::schedule(Timed& item, TimePoint at) {
  if (at == TimePoint::max()) return;
  if (item.heap_index == Timed::kNone) {
    entries_.push_back({at, &item});
    item.heap_index = entries_.size() - 1;
  } else if (entries_[item.heap_index].at <= at) {
    return;
  } else {
    entries_[item.heap_index].at = at;
  }
  sift_up(item.heap_index);
}

void TimerHeap::remove(Timed& item) {
  const std::size_t index = item.heap_index;
  if (index == Timed::kNone) return;
  item.heap_index = Timed::kNone;
  const Entry last = entries_.back();
  entries_.pop_back();
  if (last.item == &item) return;
  place(index, last);
  sift_up(index);
  sift_down(last.item->heap_index);
}

Timed* TimerHeap::pop(TimePoint now) {
  if (entries_.empty() || entries_[0].at > now) return nullptr;
  Timed* item = entries_[0].item;
  remove(*item);
  return item;
}

void TimerHeap::sift_up(std::size_t index) {
  const Entry moving = entries_[index];
  while (index > 0) {
    const std::size_t parent = (index - 1) / 2;
    if (entries_[parent].at <= moving.at) break;
    place(index, entries_[parent]);
    index = parent;
  }
  place(index, moving);
}

void TimerHeap::sift_down(std::size_t index) {
  const Entry moving = entries_[index];
  for (;;) {
    std::size_t child = index * 2 + 1;
    if (child >= entries_.size()) break;
    if (child + 1 < entries_.size() && entries_[child + 1].at < entries_[child].at) ++child;
    if (moving.at <= entries_[child].at) break;
    place(index, entries_[child]);
    index = child;
  }
  place(index, moving);
}

}  // namespace drupe::net
