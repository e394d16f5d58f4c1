// Saves a running machine into files, or leaves it as it was.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "hypervisor/hypervisor.h"
#include "shim/guest_link.h"
#include "shim/record.h"

namespace drupe {

/// Names of the files that a save writes, all new.
struct SaveNames {
  std::string memory, extents, device_state;
};

/// One save. Order: sync() flushes the guest while it runs; save() freezes it, stops the machine and writes.
/// After save() has succeeded the machine stands still with its guest frozen, until go_on() or its end. When
/// save() fails, everything has been undone and the guest runs, or unusable() says that it could not be
/// brought back.
class Saver {
 public:
  Saver(Machine& machine, GuestLink& link, int dir, SaveNames names)
      : machine_(machine), link_(link), dir_(dir), names_(std::move(names)) {}

  Status sync(Deadline deadline);
  Result<SavedState> save(SaveForm form, Deadline deadline);
  /// Lets the machine and its guest run on; `keep_files`: the saved files stay.
  Status go_on(bool keep_files);
  /// Makes the files (and `others`, in the same directory) survive a power cut. Any time after save().
  Status make_durable(const std::vector<std::string>& others);
  [[nodiscard]] bool unusable() const { return unusable_; }
  /// How long the machine has stood still: until now, or until go_on().
  [[nodiscard]] double stopped_ms() const;

 private:
  Result<SavedState> write_files(SaveForm form, Deadline deadline);
  void remove_files();

  Machine& machine_;
  GuestLink& link_;
  int dir_;
  SaveNames names_;
  bool frozen_ = false, stopped_ = false, unusable_ = false;
  Clock::time_point stopped_at_, went_on_at_;
};

}  // namespace drupe
