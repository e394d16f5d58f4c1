// A table whose entries are named by index and generation.
#pragma once

#include <memory>
#include <vector>

#include "net/stack/packet_address.h"

namespace drupe::net {

/// Owns its entries. A FlowId of an entry that is gone finds nothing, also after its index is used again.
template <class T>
class Slots {
 public:
  /// The id that the next put() gives its entry.
  [[nodiscard]] FlowId next_id() const {
    if (!free_.empty()) return {free_.back(), slots_[free_.back()].generation};
    return {static_cast<std::uint32_t>(slots_.size()), 1};
  }
  T& put(std::unique_ptr<T> entry) {
    const FlowId id = next_id();
    if (free_.empty())
      slots_.push_back({nullptr, 1});
    else
      free_.pop_back();
    ++size_;
    slots_[id.index].entry = std::move(entry);
    return *slots_[id.index].entry;
  }
  [[nodiscard]] T* find(FlowId id) const {
    if (id.index >= slots_.size() || slots_[id.index].generation != id.generation) return nullptr;
    return slots_[id.index].entry.get();
  }
  /// Precondition: `id` is in the table.
  void erase(FlowId id) {
    auto& slot = slots_[id.index];
    slot.entry.reset();
    ++slot.generation;
    free_.push_back(id.index);
    --size_;
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  template <class F>
  void for_each(F call) const {
    for (const auto& slot : slots_)
      if (slot.entry) call(*slot.entry);
  }

 private:
  struct Slot {
    std::unique_ptr<T> entry;
    std::uint32_t generation;
  };
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::size_t size_ = 0;
};

}  // namespace drupe::net
