// What Admission says about bytes, in the terms of the packet plane.
#pragma once

#include "net/inspect/admission.h"
#include "net/world/gate.h"

namespace drupe::net {

/// The packet plane shows what it holds again and again; Admission wants each byte once. `admission` lives
/// longer. One thread.
class FlowInspector final : public Inspector {
 public:
  explicit FlowInspector(Admission& admission) : admission_(admission) {}

  Verdict look(ByteView pending, bool end) override;
  [[nodiscard]] bool world_may_speak_first() const override { return admission_.server_may_speak_first(); }
  [[nodiscard]] bool wants_world() const override { return admission_.wants_server(); }
  bool on_world(ByteView bytes) override;

 private:
  bool note(const Inspection& inspection);

  Admission& admission_;
  std::uint64_t shown_ = 0;     // bytes of the guest that Admission has seen
  std::uint64_t passed_ = 0;    // of these, reported as passed
  std::uint64_t released_ = 0;  // of these, free to go
  bool refused_ = false;
};

}  // namespace drupe::net
