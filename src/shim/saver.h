// Saves a running machine into files, or leaves it as it was.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hypervisor/hypervisor.h"
#include "shim/guest_link.h"
#include "shim/record.h"
#include "shim/timings.h"

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
  Saver(EventLoop& loop, Machine& machine, GuestLink& link, int dir, SaveNames names)
      : loop_(loop), machine_(machine), link_(link), dir_(dir), names_(std::move(names)) {}

  Status sync(Deadline deadline);
  /// Flushes and no more, in two parts, for a caller who has something to do meanwhile.
  void begin_flush();
  Status end_flush(Deadline deadline);
  Result<SavedState> save(SaveForm form, Deadline deadline);
  Result<SavedState> save(SaveForm form, Deadline deadline, StageMarks& marks);
  /// Lets the machine and its guest run on; `keep_files`: the saved files stay. `repair` is called when the
  /// agent answers and the guest's work still stands.
  Status go_on(bool keep_files, const std::function<Status(Deadline)>& repair);
  /// The guest runs in another machine, to which the link has been moved: this one is of no interest now.
  void leave_machine() { stopped_ = false; }
  /// Makes the files (and `others`, in the same directory) survive a power cut. Any time after save().
  Status make_durable(const std::vector<std::string>& others);
  [[nodiscard]] bool unusable() const { return unusable_; }
  /// How long the guest's work has stood still: until now, or until go_on().
  [[nodiscard]] double stopped_ms() const;

 private:
  Result<SavedState> write_files(SaveForm form, Deadline deadline, StageMarks& marks);
  void remove_files();
  void begin(RequestKind kind);

  EventLoop& loop_;
  Machine& machine_;
  GuestLink& link_;
  int dir_;
  SaveNames names_;
  /// Shared with the request, which may outlive this object.
  std::shared_ptr<std::optional<Result<std::string>>> synced_;
  bool frozen_ = false, stopped_ = false, unusable_ = false;
  Clock::time_point stopped_at_, went_on_at_;
};

}  // namespace drupe
