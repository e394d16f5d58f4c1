// A machine in which a sandbox goes on after it was saved for a fork, in place of the one that was saved:
// that one's hypervisor holds a writable descriptor of the disk node that the fork's children read.
#pragma once

#include <memory>
#include <string>

#include "hypervisor/hypervisor.h"
#include "shim/guest_link.h"
#include "shim/record.h"
#include "shim/timings.h"

namespace drupe {

/// Order: prepare() while the guest runs; restore() when it is frozen and saved; take(). Without take() the
/// machine and its disk node go with this object.
class Replacement {
 public:
  Replacement(EventLoop& loop, Hypervisor& hypervisor, int dir)
      : loop_(loop), hypervisor_(hypervisor), dir_(dir) {}
  ~Replacement();
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  /// Makes a disk node with the name `node` over those of `record`, and starts the process. `net_end`: the
  /// machine's end of the network card's socket.
  Status prepare(SandboxRecord record, std::string node, UniqueFd net_end, Deadline deadline);
  /// Lets the guest run here, its work still frozen, and moves the link. An error leaves the link, and the
  /// guest of the machine that was saved, as they were.
  Status restore(const SavedState& saved, GuestLink& link, Deadline deadline, StageMarks& marks);
  [[nodiscard]] std::unique_ptr<Machine> take();
  /// Instead of take(): ends the machine.
  void kill() { machine_.reset(); }
  [[nodiscard]] const std::string& node() const { return node_; }
  /// After kill(): the disk node stays, without what was written to it.
  Status keep_empty_node();

 private:
  EventLoop& loop_;
  Hypervisor& hypervisor_;
  int dir_;
  SandboxRecord record_;
  std::string node_;
  bool keep_node_ = false;
  std::unique_ptr<Machine> machine_;
};

}  // namespace drupe
